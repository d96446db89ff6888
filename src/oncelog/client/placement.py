"""Assigns records to partitions, and holds those whose topic's metadata is not known yet.

A record without a partition waits here until the sender's task has the topic's metadata, with all
later ones of that topic behind it, in the order of `send`. This module does not know transactions:
the producer supplies the error of waiting records.
"""

from collections.abc import Callable, Collection
from typing import NamedTuple

from oncelog.client.errors import AbortableError, ClientError
from oncelog.client.machines.producer import ProducerMachine, size_of
from oncelog.client.machines.unknown import does_not_exist
from oncelog.client.partitioners import Partitioner
from oncelog.client.sender import Token
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.protocol.hashing import partition_for_key
from oncelog.protocol.record import Record

__all__ = ["Placement"]


class _Held(NamedTuple):
    """A record that waits. `partition` is the one that its sender chose, if it did."""

    created_ms: float
    record: Record
    token: Token
    partition: int | None


class Placement:
    """Puts records into the machine's batches, at once or when their topic is known.

    partition_count: how many partitions a topic has, None while it is unknown.
    fail: called for each held record that fails. partitioner: chooses in place of key and rotation.
    ignore_keys: the rotation alone chooses.
    """

    def __init__(
        self,
        machine: ProducerMachine,
        partition_count: Callable[[str], int | None],
        fail: Callable[[Token, ClientError], None],
        partitioner: Partitioner | None = None,
        *,
        ignore_keys: bool = False,
    ) -> None:
        self._machine = machine
        self._partition_count = partition_count
        self._fail = fail
        self._partitioner = partitioner
        self._ignore_keys = ignore_keys
        self._held: dict[str, list[_Held]] = {}
        self._sticky: dict[str, int] = {}
        self.held_size = 0
        """Bytes of the records that wait here."""

    def topics(self) -> set[str]:
        """Topics that records wait for."""
        return set(self._held)

    def put(
        self, topic: str, partition: int | None, record: Record, token: Token, created_ms: float
    ) -> None:
        """Queue a record for `partition`, or for one chosen by its key or the rotation.

        One with a partition also waits: until metadata has the partition, and behind others of its
        topic, which may belong to the same partition and were sent first.
        """
        waits = topic in self._held
        if not waits:
            if partition is None:
                partition = self._choose(topic, record)
            else:
                waits = not self._is_known(topic, partition)
        if waits or partition is None:
            self._held.setdefault(topic, []).append(_Held(created_ms, record, token, partition))
            self.held_size += size_of(record)
        else:
            self._machine.append(TopicPartition(topic, partition), record, token, created_ms)

    def place(self) -> None:
        """Assign the held records whose topics are known now."""
        for topic in [t for t in self._held if self._partition_count(t)]:
            for held in self._held.pop(topic):
                created_ms, record, token, partition = held
                if not self._is_known(topic, partition):
                    self._held.setdefault(topic, []).append(held)
                    continue
                self.held_size -= size_of(record)
                if partition is None:
                    partition = self._choose_later(topic, record, token)
                if partition is None:
                    continue
                tp = TopicPartition(topic, partition)
                self._machine.append(tp, record, token, created_ms)

    def reject_topic(self, topic: str, error: ClientError) -> None:
        """Fail what waits for `topic`: it cannot be produced to."""
        for held in self._held.pop(topic, ()):
            self.held_size -= size_of(held.record)
            self._fail(held.token, error)

    def fail_all(self, reason: str) -> None:
        """Fail everything that waits."""
        self._fail_where(lambda topic, _: _unknown(f"{topic}: {reason}"))

    def fail_created_by(self, deadline_ms: float, reason: str) -> None:
        """Fail what was sent at `deadline_ms` or before."""

        def expired(topic: str, held: _Held) -> AbortableError | None:
            return _unknown(f"{topic}: {reason}") if held.created_ms <= deadline_ms else None

        self._fail_where(expired)

    def fail_unknown(self, missing: Collection[str], deadline_ms: float) -> None:
        """Fail what was sent at `deadline_ms` or before to a topic or partition that is not there.

        `missing`: the topics that brokers do not know.
        """

        def expired(topic: str, held: _Held) -> AbortableError | None:
            count = self._partition_count(topic)
            if held.created_ms > deadline_ms or (not count and topic not in missing):
                return None
            if self._is_known(topic, held.partition):
                return None
            return _unknown(
                does_not_exist(TopicPartition(topic, held.partition or 0), count).message
            )

        self._fail_where(expired)

    def _is_known(self, topic: str, partition: int | None) -> bool:
        count = self._partition_count(topic) or 0
        return count > 0 if partition is None else partition < count

    def _fail_where(self, expired: Callable[[str, _Held], ClientError | None]) -> None:
        for topic, waiting in list(self._held.items()):
            kept = []
            for held in waiting:
                error = expired(topic, held)
                if error is None:
                    kept.append(held)
                    continue
                self.held_size -= size_of(held.record)
                self._fail(held.token, error)
            if kept:
                self._held[topic] = kept
            else:
                del self._held[topic]

    def _choose_later(self, topic: str, record: Record, token: Token) -> int | None:
        """Like `_choose`, in the sender's task: a partitioner's exception fails its record."""
        try:
            return self._choose(topic, record)
        except Exception as error:  # noqa: BLE001 - a function of the user's
            text = f"{topic}: the partitioner failed: {error!r}"
            self._fail(token, AbortableError(ErrorCode.invalid_partitions, text))
            return None

    def _choose(self, topic: str, record: Record) -> int | None:
        """None while the topic is unknown. Raises what the user's partitioner raises."""
        count = self._partition_count(topic)
        if not count:
            return None
        if self._partitioner is not None:
            return self._chosen(topic, record, count, self._partitioner)
        if record.key is not None and not self._ignore_keys:
            return partition_for_key(record.key, count)
        sticky = self._sticky.get(topic, 0) % count
        if not self._machine.has_open_batch(TopicPartition(topic, sticky)):
            sticky = (sticky + 1) % count
        self._sticky[topic] = sticky
        return sticky

    def _chosen(self, topic: str, record: Record, count: int, partitioner: Partitioner) -> int:
        chosen = partitioner(topic, record.key, record.value, count)
        if not 0 <= chosen < count:
            raise ValueError(f"the partitioner chose {chosen}: {topic} has 0 to {count - 1}")
        return chosen


def _unknown(text: str) -> AbortableError:
    return AbortableError(ErrorCode.unknown_topic_or_partition, text)
