"""Adds the broker's log, topics and transactions to the report of a failed test.

A broker that many tests share is shown as far as the failed test changed it: `LogEnds` holds where
its logs ended when the test began. The history of a transaction is its records in
`__transaction_state`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from logging import INFO, NOTSET, Formatter, Handler, LogRecord, getLogger
from typing import TYPE_CHECKING, Final

from oncelog.core.ids import TRANSACTION_STATE_TOPIC, TopicId, TopicPartition
from oncelog.core.limits import COORDINATOR_LOAD_BYTES
from oncelog.protocol.records.scan import scan_batches
from oncelog.protocol.records.transaction_log import (
    TransactionLogValue,
    decode_key,
    decode_value,
)
from oncelog.transaction.states import TransactionState

if TYPE_CHECKING:
    from oncelog.broker.broker import Broker
    from oncelog.broker.partitions.partition import Partition

__all__ = ["BrokerLog", "LogEnds", "topics_text", "transactions_text"]

LOG_LINES_COUNT_MAX: Final = 200
PARTITION_LINES_COUNT_MAX: Final = 50
LIFE_LINES_COUNT_MAX: Final = 20
THREAD_PREFIX: Final = "oncelog-"


class BrokerLog(Handler):
    """The last lines that the brokers' own threads logged, of all brokers of this process."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        self._lines: deque[str] = deque(maxlen=LOG_LINES_COUNT_MAX)
        self._listening_count = 0
        self._level_before = NOTSET

    def emit(self, record: LogRecord) -> None:
        """Store a line."""
        if threading.current_thread().name.startswith(THREAD_PREFIX):
            self._lines.append(self.format(record))

    def clear(self) -> None:
        """Remove all lines: another test begins."""
        self._lines.clear()

    def text(self) -> str:
        """Return the collected lines."""
        return "\n".join(self._lines)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Collect lines of our loggers, at level INFO until the last listener ends."""
        logger = getLogger("oncelog")
        if not self._listening_count:
            self._level_before = logger.level
            logger.addHandler(self)
            if not logger.level:
                logger.setLevel(INFO)
        self._listening_count += 1
        try:
            yield
        finally:
            self._listening_count -= 1
            if not self._listening_count:
                logger.removeHandler(self)
                logger.setLevel(self._level_before)


@dataclass(frozen=True, slots=True)
class LogEnds:
    """Where the logs of a broker ended when a test began: what is new since is that test's."""

    topic_ids: frozenset[TopicId] = frozenset()
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)

    @classmethod
    def of(cls, broker: Broker) -> LogEnds:
        """Return the ends as they are now."""
        return cls(
            frozenset(topic.topic_id for topic in broker.image.topics.values()),
            {each.topic_partition: each.log.log_end_offset for each in broker.partitions},
        )

    def changed_topics(self, broker: Broker) -> set[str]:
        """Return the topics that were created or written to since."""
        created = {
            name
            for name, topic in broker.image.topics.items()
            if topic.topic_id not in self.topic_ids
        }
        written = {
            each.topic_partition.topic
            for each in broker.partitions
            if self.offsets.get(each.topic_partition) != each.log.log_end_offset
        }
        return created | written


def topics_text(broker: Broker, before: LogEnds) -> str:
    """Return a line per partition of the topics that the test created or wrote to.

    It has the start and the end, the high watermark and the last stable offset. Other topics are
    counted.
    """
    changed = before.changed_topics(broker)
    partitions = sorted(
        (each for each in broker.partitions if _is_shown(each, changed)),
        key=lambda each: each.topic_partition,
    )
    lines = [f"{'partition':40} {'start':>8} {'stable':>8} {'high':>8} {'end':>8}"]
    lines += [_offsets(each) for each in partitions[:PARTITION_LINES_COUNT_MAX]]
    lines += _more(len(partitions) - PARTITION_LINES_COUNT_MAX, "partition")
    others = [name for name, topic in broker.image.topics.items() if not topic.is_internal]
    lines += _more(len(set(others) - changed), "topic", ", which this test did not change")
    return "\n".join(lines)


def _is_shown(partition: Partition, changed: set[str]) -> bool:
    log = partition.log
    is_empty = log.log_start_offset == log.log_end_offset
    return partition.topic_partition.topic in changed and not (partition.is_internal and is_empty)


def _offsets(partition: Partition) -> str:
    log = partition.log
    return (
        f"{partition.topic_partition!s:40} {log.log_start_offset:8} "
        f"{partition.last_stable_offset:8} {partition.state.high_watermark:8} "
        f"{log.log_end_offset:8}"
    )


def _more(count: int, what: str, which: str = "") -> list[str]:
    return [f"{count} more {what}{'s' if count > 1 else ''}{which}"] if count > 0 else []


def transactions_text(broker: Broker, before: LogEnds) -> str:
    """Return the history of each transactional id that the test used, as its log contains it.

    Other ids are counted. It is empty if the test used none.
    """
    lives: dict[str, list[str]] = {}
    used: set[str] = set()
    for partition in broker.partitions:
        if partition.topic_partition.topic != TRANSACTION_STATE_TOPIC:
            continue
        log = partition.log
        begun = before.offsets.get(partition.topic_partition, 0)
        offset = log.log_start_offset
        while data := bytes(
            log.read(offset, COORDINATOR_LOAD_BYTES, upper_bound=log.log_end_offset)
        ):
            for scanned in scan_batches(data, offset):
                offset = scanned.next_offset
                for at, time_ms, key, value in scanned.records:
                    id_ = None if key is None else decode_key(key)
                    if id_ is None:
                        continue
                    lives.setdefault(id_, []).append(_step(time_ms, value))
                    if at >= begun:
                        used.add(id_)
    if not used:
        return ""
    left_out = _more(len(lives) - len(used), "transactional id", ", which this test did not use")
    return "\n".join([*_told({id_: lives[id_] for id_ in used}), *left_out])


def _told(lives: dict[str, list[str]]) -> Iterator[str]:
    for id_, steps in sorted(lives.items()):
        yield id_
        left_out = len(steps) - LIFE_LINES_COUNT_MAX
        if left_out > 0:
            yield f"  ... {left_out} records before"
        yield from steps[-LIFE_LINES_COUNT_MAX:]


def _step(time_ms: int, value: bytes | None) -> str:
    at = f"  {_clock_text(time_ms)}"
    if value is None:
        return f"{at} forgotten: idle beyond transactional.id.expiration.ms"
    written: TransactionLogValue = decode_value(value)
    who = f"producer {written.producer_id}, epoch {written.producer_epoch}"
    partitions = [f"{topic}-{index}" for topic, all_ in written.partitions or () for index in all_]
    where = f" on {', '.join(partitions)}" if partitions else ""
    return f"{at} {TransactionState(written.status).label} ({who}){where}"


def _clock_text(time_ms: int) -> str:
    seconds, ms = divmod(time_ms, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours % 24:02}:{minutes:02}:{seconds:02}.{ms:03}"
