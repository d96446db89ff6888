"""`make soak`: stock clients copy a topic exactly once, while they and the broker are killed.

Each client copies 100,000 records by transactions (`tests.support.copying`; Apache's
TransactionalMessageCopier where its jars can be had) into a topic of its own, with aborts at
random. Processes of clients and of the brokers, each of these in turn, die by SIGKILL all the
while, and a read_committed reader reads along. In the end each copy must be its source, record by
record: nothing lost, nothing twice, in order, both for that reader and for one that comes
afterwards. And a process of each client must have been killed: else its copy proves nothing.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console

from tests.support import evidence
from tests.support.broker import BrokerProcess, broker_processes
from tests.support.copying import CLIENTS
from tests.support.peer.cluster import BrokerCluster
from tests.support.peer.kafka import PeerUnavailable, jars, java
from tests.support.workload import QUIET

SOURCE = "source"
BROKER_LOGS = "broker-*.log"
PARTITION_COUNT = 3
JAVA = "java"
COPIER_CLASS = "org.apache.kafka.tools.TransactionalMessageCopier"
BROKER_KILL_EVERY_S = (5.0, 15.0)
CLIENT_KILL_EVERY_S = (4.0, 12.0)
JAVA_KILL_EVERY_S = (1.0, 6.0)
"""It copies a partition within some ten seconds, and begins a new process for the next."""
SPARED_CHANCE = 0.3
"""How often a process is not killed, so that the clients come on."""
FROM_THE_FIRST_WORD_CHANCE = 0.8
"""How often a process is killed so long after it told of a transaction, and not after its start:
else it would never come to one on a busy machine."""
READY_TIMEOUT_S = 300
COMES_ON_S = 60
"""A broker is killed once some client told of a transaction since its start, or after so long."""
STUCK_S = 90
"""A client that tells of nothing for so long is killed as well: librdkafka can hang for ever in
`send_offsets_to_transaction` when a broker dies (its issues 5456 and 5511)."""
BOUND_S = 3_600
FINDINGS_SHOWN_MAX = 20

Copies = dict[int, list[bytes]]


class Life(NamedTuple):
    """How a process is to end: it is killed `bound_s` after its start, or after its first word."""

    bound_s: float
    from_first_word: bool


def draw_life(rng: random.Random, kind: str, kill_count: int) -> Life:
    """Draw the life of a client's next process, after `kill_count` of its processes were killed.

    The first is killed in any case, and once it told of a transaction: with bad luck a client would
    be spared from its first process to its last.
    """
    bound_s = rng.uniform(*(JAVA_KILL_EVERY_S if kind == JAVA else CLIENT_KILL_EVERY_S))
    is_spared = rng.random() < SPARED_CHANCE
    from_first_word = rng.random() < FROM_THE_FIRST_WORD_CHANCE
    if not kill_count:
        return Life(bound_s, from_first_word=True)
    return Life(BOUND_S if is_spared else bound_s, from_first_word)


@dataclass
class Copier:
    """One kind of client over all its processes."""

    kind: str
    servers: str
    seed: int
    folder: Path
    counts: Counter[str] = field(default_factory=Counter)
    is_done: bool = False
    stop: threading.Event = field(default_factory=threading.Event)
    spares: bool = False
    """Whether none of its processes is killed."""
    _life: int = 0

    @property
    def target(self) -> str:
        return f"copy-{self.kind}"

    def supervise(self) -> None:
        """New processes until one has copied everything. Only Java has one for each partition."""
        for partition in range(PARTITION_COUNT if self.kind == JAVA else 1):
            while not self.stop.is_set() and self._run(partition) != 0:
                time.sleep(0.1)
        self.is_done = not self.stop.is_set()

    def _command(self, partition: int) -> list[str]:
        if self.kind != JAVA:
            command = [sys.executable, "-m", "tests.support.copying", self.kind, self.servers]
            seed = f"{self.seed}/{self.kind}/{self._life}"
            return [*command, SOURCE, self.target, str(PARTITION_COUNT), seed]
        options = {
            "--broker-list": self.servers,
            "--input-topic": SOURCE,
            "--input-partition": str(partition),
            "--output-topic": self.target,
            "--consumer-group": f"group-{self.target}",
            "--transactional-id": f"{self.target}-{partition}",
        }
        words = [word for option in options.items() for word in option]
        return [java(), "-Xmx256m", "-cp", jars(), COPIER_CLASS, *words, "--enable-random-aborts"]

    def _run(self, partition: int) -> int:
        """One process, to its end or its death."""
        rng = random.Random(f"{self.seed}/{self.kind}/{self._life}/kill")
        self._life += 1
        spared = Life(BOUND_S, from_first_word=False)
        life = spared if self.spares else draw_life(rng, self.kind, self.counts["killed"])
        path = self.folder / f"{self.kind}.log"
        begun = path.stat().st_size if path.exists() else 0
        errors = path.with_suffix(".err")
        with path.open("ab") as output, errors.open("ab") as trouble:
            process = subprocess.Popen(self._command(partition), stdout=output, stderr=trouble)
            code = self._watch(process, path, *life)
        with path.open("rb") as told:
            told.seek(begun)
            lines = told.read().splitlines()
        self.counts["committed"] += sum(line.startswith(b"committed") for line in lines)
        self.counts["transactions"] += sum(b'"ProcessLoop"' in line for line in lines)
        self.counts["aborted"] += sum(line.startswith(b"aborted") for line in lines)
        self.counts["gave up"] += code > 0
        return code

    def _watch(
        self,
        process: subprocess.Popen[bytes],
        path: Path,
        bound_s: float,
        from_first_word: bool,
    ) -> int:
        """Wait for the end of a process, or kill it; returns its code, -1 if it was killed."""
        begun_s = told_s = time.monotonic()
        size = path.stat().st_size
        while True:
            with suppress(subprocess.TimeoutExpired):
                return process.wait(0.5)
            now_s = time.monotonic()
            if path.stat().st_size != size:
                size, told_s = path.stat().st_size, now_s
                if from_first_word:
                    begun_s, from_first_word = now_s, False
            is_stuck = now_s - told_s > STUCK_S or self.stop.is_set()
            if is_stuck or (now_s - begun_s > bound_s and not from_first_word):
                process.kill()
                process.wait()
                self.counts["stuck" if is_stuck else "killed"] += 1
                return -1


class Following:
    """A read_committed reader that reads all copies while they are written."""

    def __init__(self, servers: str, topics: list[str]) -> None:
        self.copies: dict[str, Copies] = {topic: defaultdict(list) for topic in topics}
        self.is_over = threading.Event()
        self.ends: dict[tuple[str, int], int] = {}
        self._servers = servers
        self.thread = threading.Thread(target=self._read, daemon=True)

    def _read(self) -> None:
        consumer = reading(self._servers)
        partitions = [TopicPartition(t, p, 0) for t in self.copies for p in range(PARTITION_COUNT)]
        consumer.assign(partitions)
        while not self.is_over.is_set() or not self._is_at_the_end(consumer, partitions):
            for message in consumer.consume(1000, 0.2):
                if message.error() is None:
                    topic, partition = message.topic(), message.partition()
                    self.copies[topic or ""][partition or 0].append(message.value() or b"")
        consumer.close()

    def _is_at_the_end(self, consumer: Consumer, partitions: list[TopicPartition]) -> bool:
        return all(
            at.offset >= self.ends[at.topic, at.partition]
            for at in consumer.position(partitions)
            if self.ends[at.topic, at.partition]
        )


def reading(servers: str) -> Consumer:
    """A read_committed consumer that begins where it is told to."""
    return Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "followers",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            **QUIET,
        }
    )


def fill(servers: str, topics: list[str], count: int) -> dict[int, list[bytes]]:
    """Make the topics, each with a replica on every broker, and write the source."""
    admin = AdminClient({"bootstrap.servers": servers})
    replicas_count = servers.count(",") + 1
    made = [NewTopic(name, PARTITION_COUNT, replicas_count) for name in (SOURCE, *topics)]
    for future in admin.create_topics(made).values():
        future.result(30)
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, **QUIET})
    source: dict[int, list[bytes]] = {p: [] for p in range(PARTITION_COUNT)}
    for number in range(count):
        partition = number % PARTITION_COUNT
        value = b"%d:%d" % (partition, len(source[partition]))
        source[partition].append(value)
        producer.produce(SOURCE, value, partition=partition)
        if number % 1000 == 0:
            producer.poll(0)
            producer.flush(30)
    if producer.flush(60):
        raise TimeoutError("the source could not be written")
    return source


def kill_brokers(
    cluster: BrokerCluster[BrokerProcess],
    rng: random.Random,
    stop: threading.Event,
    folder: Path,
    every_s: tuple[float, float],
) -> int:
    """SIGKILL one after the other and start it again until told to stop; returns how often."""
    kills = 0
    brokers = cycle(cluster.brokers.values())
    while not stop.wait(rng.uniform(*every_s)):
        told, deadline_s = told_bytes(folder), time.monotonic() + COMES_ON_S
        while told_bytes(folder) == told and time.monotonic() < deadline_s and not stop.wait(0.2):
            pass
        broker = next(brokers)
        broker.kill()
        broker.start()
        kills += 1
    return kills


def told_bytes(folder: Path) -> int:
    """How much the clients told of their transactions so far."""
    logs = set(folder.glob("*.log")) - set(folder.glob(BROKER_LOGS))
    return sum(path.stat().st_size for path in logs)


def ends_of(servers: str, topics: list[str]) -> dict[tuple[str, int], int]:
    """The next offsets of all copies."""
    consumer = reading(servers)
    found = {
        (topic, p): consumer.get_watermark_offsets(TopicPartition(topic, p), 30)[1]
        for topic in topics
        for p in range(PARTITION_COUNT)
    }
    consumer.close()
    return found


def judge(source: Copies, copies: dict[str, Copies], who: str) -> list[str]:
    """What is wrong with what a reader saw of the copies."""
    findings = []
    for topic, copy in copies.items():
        for partition, wanted in source.items():
            seen = copy.get(partition, [])
            if seen == wanted:
                continue
            counts = Counter(seen)
            twice = sum(count - 1 for count in counts.values())
            lost = len(set(wanted) - counts.keys())
            order = "" if twice or lost else ", out of order"
            findings.append(f"{who}: {topic}-{partition}: {lost} lost, {twice} twice{order}")
    return findings


def run(
    kinds: list[str],
    count: int,
    seed: int,
    folder: Path,
    tell: Callable[[str], None],
    brokers_count: int = 1,
    *,
    spares_clients: bool = False,
    kill_every_s: tuple[float, float] = BROKER_KILL_EVERY_S,
) -> tuple[int, dict[str, dict[str, int]], list[str]]:
    """Everything; returns how often a broker was killed, each client's counts, what is wrong."""
    rng = random.Random(seed)
    stop = threading.Event()
    topics = [f"copy-{kind}" for kind in kinds]
    kills: list[int] = []
    brokers = broker_processes(folder, brokers_count)
    for broker in brokers:
        broker.ready_timeout_s = READY_TIMEOUT_S
    with BrokerCluster(brokers) as cluster:
        servers = cluster.bootstrap_servers
        source = fill(servers, topics, count)
        copiers = [
            Copier(kind, servers, seed, folder, stop=stop, spares=spares_clients) for kind in kinds
        ]
        threads = [threading.Thread(target=copier.supervise) for copier in copiers]
        following = Following(servers, topics)
        following.thread.start()
        murder = threading.Thread(
            target=lambda: kills.append(kill_brokers(cluster, rng, stop, folder, kill_every_s))
        )
        for thread in (*threads, murder):
            thread.start()
        deadline_s = time.monotonic() + BOUND_S
        for thread in threads:
            while thread.is_alive() and time.monotonic() < deadline_s:
                thread.join(5)
                tell(", ".join(f"{c.kind} {dict(c.counts)}" for c in copiers))
        stop.set()
        murder.join()
        findings = [f"{c.kind} did not come to its end" for c in copiers if not c.is_done]
        following.ends = ends_of(servers, topics)
        following.is_over.set()
        following.thread.join(60)
        if following.thread.is_alive():
            findings.append("the reader did not come to the end of the copies")
        findings += judge(source, following.copies, "the reader all along")
        after = Following(servers, topics)
        after.ends = following.ends
        after.is_over.set()
        after.thread.start()
        after.thread.join(120)
        findings += judge(source, after.copies, "a reader afterwards")
    return sum(kills), {c.kind: dict(c.counts) for c in copiers}, findings


def verdict_of(findings: list[str], counts: Mapping[str, Mapping[str, int]]) -> str:
    """The verdict of a run, by its findings and the counts of each client."""
    if findings:
        return "not exact"
    spared = [kind for kind, count in counts.items() if not count.get("killed")]
    return f"no client was killed: {', '.join(spared)}" if spared else "exact"


def kinds_here() -> list[str]:
    """The clients that can run here."""
    try:
        jars()
    except (KafkaException, PeerUnavailable):
        return list(CLIENTS)
    return [*CLIENTS, JAVA]


def brokers_said(count: int) -> str:
    """How a row of the evidence says on how many brokers it ran."""
    return "the broker" if count == 1 else f"{count} brokers"


def main() -> int:
    """Exit code 0 if every copy is exact, and no client was spared."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clients", nargs="+", choices=[*CLIENTS, JAVA])
    parser.add_argument("--brokers", type=int, default=1)
    parser.add_argument(
        "--kill-every",
        type=float,
        nargs=2,
        default=BROKER_KILL_EVERY_S,
        metavar="SECONDS",
        help="bounds of the time from a broker's return to the death of the next one",
    )
    arguments = parser.parse_args()
    console = Console()
    kinds = arguments.clients or kinds_here()
    folder = Path(tempfile.mkdtemp(prefix="oncelog-copy-soak-"))
    console.print(f"seed {arguments.seed}, {arguments.records:,} records, {kinds}, in {folder}")
    with console.status("copying") as status:
        kills, counts, findings = run(
            kinds,
            arguments.records,
            arguments.seed,
            folder,
            status.update,
            arguments.brokers,
            kill_every_s=(arguments.kill_every[0], arguments.kill_every[1]),
        )
    verdict = verdict_of(findings, counts)
    for finding in findings[:FINDINGS_SHOWN_MAX]:
        console.print(f"[red]{finding}[/red]")
    console.print(verdict, kills, counts)
    killed = sum(client.get("killed", 0) for client in counts.values())
    count = f"{arguments.records:,} records by each of {len(counts)} clients, {killed} kills of "
    count += f"clients and {kills} of {brokers_said(arguments.brokers)}"
    how = f"python -m tests.support.copy_soak --records {arguments.records} "
    how += f"--seed {arguments.seed}"
    campaign = "copy-soak"
    if arguments.brokers > 1:
        how += f" --brokers {arguments.brokers}"
        campaign += f", {brokers_said(arguments.brokers)}"
    if arguments.kill_every != BROKER_KILL_EVERY_S:
        how += " --kill-every {:g} {:g}".format(*arguments.kill_every)
    evidence.note(campaign, verdict, count, how, seed=arguments.seed)
    return 0 if verdict == "exact" else 1


if __name__ == "__main__":
    sys.exit(main())
