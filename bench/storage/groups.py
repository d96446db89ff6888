"""Many groups on one broker: what it costs to form and to hold them.

Each is a classic group with one member, which has an assignment and a committed offset. The frames
are written by hand: a client library would hold far more for each consumer than the broker does.
"""

import socket
import struct
import time
from contextlib import ExitStack
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, TopicPartition

from bench.gauges import resident_mb
from bench.stats import Figures
from bench.systems import System
from bench.work import TIMEOUT_S, fresh_topic

CONNECTIONS = 50
"""So many groups are formed at a time."""
OFFSET_COMMIT, JOIN_GROUP, SYNC_GROUP = 8, 11, 14
VERSIONS = {OFFSET_COMMIT: 2, JOIN_GROUP: 2, SYNC_GROUP: 1}
SESSION_MS = 1_800_000
"""The longest that brokers allow: nobody sends heartbeats."""
SUBSCRIPTION = bytes(100)
RETRIED = {14, 15, 16}
"""COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR"""
RETRY_S = 0.1


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
        with ExitStack() as stack:
            members = [
                stack.enter_context(_Connection(system.bootstrap_servers))
                for _ in range(CONNECTIONS)
            ]
            for first in range(0, self.count, CONNECTIONS):
                numbers = range(first, min(first + CONNECTIONS, self.count))
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


def form(groups: list[str], topic: str, connections: list["_Connection"]) -> None:
    """Bring each group to its first commit, all of them side by side."""
    used = connections[: len(groups)]
    joined = [
        _joined(answer)
        for answer in _ask(used, JOIN_GROUP, [join_request(group) for group in groups], 4)
    ]
    named = list(zip(groups, joined, strict=True))
    _ask(used, SYNC_GROUP, [sync_request(group, *who) for group, who in named], 4)
    _ask(used, OFFSET_COMMIT, [commit_request(group, *who, topic) for group, who in named], -2)


def join_request(group: str) -> bytes:
    """JoinGroup 2 of a new member."""
    protocols = struct.pack(">i", 1) + _string("range") + _bytes(SUBSCRIPTION)
    timeouts = struct.pack(">ii", SESSION_MS, SESSION_MS)
    return _string(group) + timeouts + _string("") + _string("consumer") + protocols


def _joined(answer: bytes) -> tuple[int, str]:
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
    assigned = struct.pack(">i", 1) + _string(member) + _bytes(SUBSCRIPTION)
    return _string(group) + struct.pack(">i", generation) + _string(member) + assigned


def commit_request(group: str, generation: int, member: str, topic: str) -> bytes:
    """OffsetCommit 2 of one partition."""
    partition = struct.pack(">iiqh", 1, 0, 1, 0)
    topics = struct.pack(">i", 1) + _string(topic) + partition
    who = struct.pack(">i", generation) + _string(member) + struct.pack(">q", -1)
    return _string(group) + who + topics


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _bytes(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


class _Connection:
    """A connection on which one request is answered after the other."""

    def __init__(self, bootstrap_servers: str) -> None:
        host, _, port = bootstrap_servers.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, api: int, body: bytes) -> None:
        header = struct.pack(">hhih", api, VERSIONS[api], 1, -1)
        self._socket.sendall(struct.pack(">i", len(header) + len(body)) + header + body)

    def receive(self) -> bytes:
        """An answer's body. Raises RuntimeError when the connection is closed."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)[4:]

    def _exactly(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            more = self._socket.recv(size - len(found))
            if not more:
                raise RuntimeError("a connection was closed instead of answered")
            found += more
        return bytes(found)

    def __enter__(self) -> "_Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


def _ask(
    connections: list[_Connection], api: int, bodies: list[bytes], error_at: int
) -> list[bytes]:
    """Ask all at once; the answers, whose error stands at that place."""
    for connection, body in zip(connections, bodies, strict=True):
        connection.send(api, body)
    answers = [connection.receive() for connection in connections]
    deadline_s = time.monotonic() + TIMEOUT_S
    for at, connection in enumerate(connections):
        while (error := _error(answers[at], error_at)) in RETRIED:
            if time.monotonic() > deadline_s:
                break
            time.sleep(RETRY_S)
            connection.send(api, bodies[at])
            answers[at] = connection.receive()
        if error:
            raise RuntimeError(f"request {api} of a group was answered with error {error}")
    return answers


def _error(answer: bytes, at: int) -> int:
    return int.from_bytes(answer[at : at + 2] if at >= 0 else answer[at:], "big", signed=True)
