"""Adds the broker's log, topics and transactions to the report of a failed test.

The history of a transaction is its records in `__transaction_state`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from logging import INFO, NOTSET, Formatter, Handler, LogRecord, getLogger
from typing import TYPE_CHECKING, Final

from oncelog.core.ids import TRANSACTION_STATE_TOPIC
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

__all__ = ["BrokerLog", "topics_text", "transactions_text"]

LOG_LINES_COUNT_MAX: Final = 200
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


def topics_text(broker: Broker) -> str:
    """Return a line per partition: its start and end, high watermark and last stable offset."""
    lines = [f"{'partition':40} {'start':>8} {'stable':>8} {'high':>8} {'end':>8}"]
    for partition in sorted(broker.partitions, key=lambda each: each.topic_partition):
        log = partition.log
        if partition.is_internal and log.log_start_offset == log.log_end_offset:
            continue
        lines.append(
            f"{partition.topic_partition!s:40} {log.log_start_offset:8} "
            f"{partition.last_stable_offset:8} {partition.state.high_watermark:8} "
            f"{log.log_end_offset:8}"
        )
    return "\n".join(lines)


def transactions_text(broker: Broker) -> str:
    """Return the history of each transactional id, as far as its log contains it."""
    lives: dict[str, list[str]] = {}
    for partition in broker.partitions:
        if partition.topic_partition.topic != TRANSACTION_STATE_TOPIC:
            continue
        log = partition.log
        offset = log.log_start_offset
        while data := bytes(
            log.read(offset, COORDINATOR_LOAD_BYTES, upper_bound=log.log_end_offset)
        ):
            for scanned in scan_batches(data, offset):
                offset = scanned.next_offset
                for _, time_ms, key, value in scanned.records:
                    id_ = None if key is None else decode_key(key)
                    if id_ is not None:
                        lives.setdefault(id_, []).append(_step(time_ms, value))
    return "\n".join(_told(lives))


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
