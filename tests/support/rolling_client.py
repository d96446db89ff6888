"""One client library's producers and consumers while brokers restart, as a process of its own.

``python -m tests.support.rolling_client LIBRARY SERVERS NAME``

It is an application that treats no error: what its library raises is told, and that part of it
ends. Two producers, an idempotent one and a transactional one, each send to a topic of their own
and tell what they sent, what was acknowledged and how each transaction ended, with the time. A
consumer in a group reads each topic as read_committed and commits what it read. Where the library
knows the newer protocol of groups, the consumer of the transactional topic uses it. ``stop`` on
standard input ends the producers; the consumers read on until they have all of it.

`tests/support/java/Rolling.java` is the same for the Java client, and `rolling.py` reads both.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable

from confluent_kafka import Consumer

from tests.support.checker import Value
from tests.support.interop import CLIENTS, Client, Reader, Record, Sender
from tests.support.interop.librdkafka import ConfluentKafka, ConfluentReader
from tests.support.interop.own import NEW_PROTOCOL, Own
from tests.support.workload import PARTITION_COUNT

PAUSE_S = 0.02
"""Between two sends of a producer."""
ABORTS_EVERY = 5
READ_TIMEOUT_S = 60.0
IDEMPOTENT, TRANSACTIONAL = "idempotent", "transactional"

_lock = threading.Lock()


def tell(*words: object) -> None:
    """Print a line, whole."""
    line = " ".join(map(str, words))
    with _lock:
        print(line, flush=True)


class Application:
    """The producers and consumers of one library."""

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self._name = name
        self._stop = threading.Event()
        self._has_ended = threading.Event()
        self._expected_counts = {IDEMPOTENT: 0, TRANSACTIONAL: 0}

    def run(self) -> None:
        """Produce and consume until standard input says that it is enough."""
        producers = [
            self._thread(IDEMPOTENT, self._produce),
            self._thread(TRANSACTIONAL, self._transact),
        ]
        consumers = [self._thread(f"reader-{kind}", self._read, kind) for kind in self.kinds]
        sys.stdin.readline()
        self._stop.set()
        for thread, kind in zip(producers, self.kinds, strict=True):
            thread.join(READ_TIMEOUT_S)
            if thread.is_alive():
                tell("problem", f"{self._name}-{kind}", "did not come to its end")
        self._has_ended.set()
        for thread in consumers:
            thread.join(2 * READ_TIMEOUT_S)

    @property
    def kinds(self) -> tuple[str, str]:
        """The two producers, their topics and who reads these."""
        return IDEMPOTENT, TRANSACTIONAL

    def topic(self, kind: str) -> str:
        """The topic of a producer."""
        return f"{self._name}-{kind}"

    def _thread(self, part: str, work: Callable[..., None], *arguments: str) -> threading.Thread:
        def guarded() -> None:
            try:
                work(*arguments)
            except Exception as error:  # noqa: BLE001 - what an application sees is told
                tell("problem", f"{self._name}-{part}", type(error).__name__, error)

        thread = threading.Thread(target=guarded, daemon=True)
        thread.start()
        return thread

    def _produce(self) -> None:
        sender = self._client.sender(idempotent=True, acks="all")
        number = 0
        while not self._stop.wait(PAUSE_S):
            number = self._send(sender, IDEMPOTENT, number, -1)
            self._expected_counts[IDEMPOTENT] = number

    def _transact(self) -> None:
        sender = self._client.sender(transactional_id=self.topic(TRANSACTIONAL))
        number = transaction = 0
        while not self._stop.wait(PAUSE_S):
            sender.begin()
            number = self._send(sender, TRANSACTIONAL, number, transaction)
            is_committed = transaction % ABORTS_EVERY < ABORTS_EVERY - 1
            if is_committed:
                sender.commit()
                self._expected_counts[TRANSACTIONAL] += PARTITION_COUNT
            else:
                sender.abort()
            outcome = "COMMITTED" if is_committed else "ABORTED"
            tell("ended", self.topic(TRANSACTIONAL), transaction, outcome, time.monotonic_ns())
            transaction += 1

    def _send(self, sender: Sender, kind: str, number: int, transaction: int) -> int:
        """Send a record to each partition and wait for all; returns the next number."""
        topic = self.topic(kind)
        numbers = range(number, number + PARTITION_COUNT)
        for each in numbers:
            tell("sent", topic, each, transaction, each % PARTITION_COUNT)
        records = [
            Record(Value(topic, each, transaction).encode(), partition=each % PARTITION_COUNT)
            for each in numbers
        ]
        offsets = sender.send(topic, records)
        at_ns = time.monotonic_ns()
        for each, offset in zip(numbers, offsets, strict=True):
            tell("acked", topic, each, offset, at_ns)
        return numbers.stop

    def _read(self, kind: str) -> None:
        reader = self._reader(kind)
        topic = self.topic(kind)
        reader.subscribe(topic)
        count, deadline_s = 0, float("inf")
        while True:
            is_last = self._has_ended.is_set()
            found = reader.poll()
            for each in found:
                tell("read", topic, each.partition, each.offset, (each.value or b"").decode())
            if found:
                reader.commit(topic, {each.partition: each.offset + 1 for each in found})
            count += len(found)
            if is_last and not found and count >= self._expected_counts[kind]:
                return
            if is_last:
                deadline_s = min(deadline_s, time.monotonic() + READ_TIMEOUT_S)
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{count} of {self._expected_counts[kind]} records were read")

    def _reader(self, kind: str) -> Reader:
        group = f"{self.topic(kind)}-group"
        is_new = kind == TRANSACTIONAL
        if isinstance(self._client, ConfluentKafka):
            settings: dict[str, str | bool] = {
                "bootstrap.servers": self._client.bootstrap_servers,
                "group.id": group,
                "group.protocol": "consumer" if is_new else "classic",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
            return ConfluentReader(Consumer(settings), group, None)
        strategy = NEW_PROTOCOL if is_new and isinstance(self._client, Own) else None
        return self._client.reader(group=group, isolation_level="read_committed", strategy=strategy)


def main(words: list[str]) -> None:
    """Be the application of a library."""
    library, servers, name = words
    # They tell of every connection that is lost.
    logging.disable(logging.CRITICAL)
    Application(CLIENTS[library](servers), name).run()
    tell("done")


if __name__ == "__main__":
    main(sys.argv[1:])
