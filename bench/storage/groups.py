"""Many groups on one broker: what it costs to form and to hold them.

Each is a classic group with one member, which has an assignment and a committed offset.
"""

import struct
import time
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, TopicPartition

from bench.gauges import resident_mb
from bench.stats import Figures
from bench.storage.frames import (
    RETRIED,
    RETRY_S,
    Connection,
    ask,
    blob,
    connected,
    shares,
    string,
)
from bench.systems import System
from bench.work import TIMEOUT_S, fresh_topic

OFFSET_COMMIT, JOIN_GROUP, SYNC_GROUP = 8, 11, 14
VERSIONS = {OFFSET_COMMIT: 2, JOIN_GROUP: 2, SYNC_GROUP: 1}
SESSION_MS = 1_800_000
"""The longest that brokers allow: nobody sends heartbeats."""
SUBSCRIPTION = bytes(100)


@dataclass(frozen=True, slots=True)
class ManyGroups:
    """So many groups of one member."""

    count: int

    def __call__(self, system: System) -> Figures:
        system.start()
        topic = fresh_topic(system, 1)
        warm_up(system, topic)
        before_mb = resident_mb(system.pid)
        begun = time.perf_counter()
        with connected(system.bootstrap_servers, VERSIONS) as members:
            for numbers in shares(self.count):
                form([f"group-{n}" for n in numbers], topic, members)
            seconds = time.perf_counter() - begun
            grown = resident_mb(system.pid) - before_mb
        return {"seconds": seconds, "memory grown by MB": max(0.1, grown)}


def warm_up(system: System, topic: str) -> None:
    """Have the broker make `__consumer_offsets`; until it leads that it refuses commits."""
    settings = {"bootstrap.servers": system.bootstrap_servers, "group.id": "first"}
    consumer = Consumer({**settings, "enable.auto.commit": False, "log_level": 0})
    deadline_s = time.monotonic() + TIMEOUT_S
    while True:
        try:
            consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
            break
        except KafkaException as refused:
            if refused.args[0].code() not in RETRIED or time.monotonic() > deadline_s:
                raise
            time.sleep(RETRY_S)
    consumer.close()


def form(groups: list[str], topic: str, connections: list[Connection]) -> None:
    """Bring each group to its first commit, all of them side by side."""
    used = connections[: len(groups)]
    members = [
        joined(answer)
        for answer in ask(used, JOIN_GROUP, [join_request(group) for group in groups], 4)
    ]
    named = list(zip(groups, members, strict=True))
    ask(used, SYNC_GROUP, [sync_request(group, *who) for group, who in named], 4)
    ask(used, OFFSET_COMMIT, [commit_request(group, *who, topic) for group, who in named], -2)


def join_request(group: str, member: str = "") -> bytes:
    """JoinGroup 2, of a new member where it has no id."""
    protocols = struct.pack(">i", 1) + string("range") + blob(SUBSCRIPTION)
    timeouts = struct.pack(">ii", SESSION_MS, SESSION_MS)
    return string(group) + timeouts + string(member) + string("consumer") + protocols


def joined(answer: bytes) -> tuple[int, str]:
    """The generation and the member id of a JoinGroup answer."""
    (generation,) = struct.unpack_from(">i", answer, 6)
    at, text = 10, ""
    for _ in ("protocol", "leader", "member"):
        (size,) = struct.unpack_from(">h", answer, at)
        text = answer[at + 2 : at + 2 + size].decode()
        at += 2 + size
    return generation, text


def sync_request(group: str, generation: int, member: str) -> bytes:
    """SyncGroup 1 of a leader that assigns something to itself."""
    assigned = struct.pack(">i", 1) + string(member) + blob(SUBSCRIPTION)
    return string(group) + struct.pack(">i", generation) + string(member) + assigned


def commit_request(group: str, generation: int, member: str, topic: str) -> bytes:
    """OffsetCommit 2 of one partition."""
    partition = struct.pack(">iiqh", 1, 0, 1, 0)
    topics = struct.pack(">i", 1) + string(topic) + partition
    who = struct.pack(">i", generation) + string(member) + struct.pack(">q", -1)
    return string(group) + who + topics
