"""A partition's log in a temporary folder, with short words for what tests do to it."""

import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.protocol.batch import BatchHeader, iter_headers
from oncelog.protocol.record import Record, build_batch, iter_records
from oncelog.runtime import Disk, SystemDisk
from oncelog.storage import AppendResult, LogConfig, Origin, PartitionLog
from oncelog.storage.producer_state import ProducerEntry

PARTITION = TopicPartition("flights", 0)
NOW_MS = 1_700_000_000_000


def batch(
    count: int = 1,
    *,
    producer: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
    timestamp_ms: int = NOW_MS,
    value: bytes = b"value",
    codec: str = "none",
) -> bytearray:
    """A client's batch of `count` records, one millisecond apart."""
    records = [Record(i, timestamp_ms + i, b"key", value) for i in range(count)]
    return build_batch(
        records,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
        codec=codec,
    )


class LogContext:
    """One log that can be appended to, killed, closed and opened again."""

    def __init__(
        self, folder: Path, disk: Disk | None = None, *, recovery_point: int = 0, **settings: Any
    ) -> None:
        self.folder = folder
        self.disk: Disk = SystemDisk() if disk is None else disk
        self.config = replace(LogConfig(), **settings)
        self.now_ms = NOW_MS
        self.leader_epoch = 0
        self.log = self.open(recovery_point=recovery_point)

    def open(
        self, *, clean: bool = False, recovery_point: int = 0, high_watermark: int | None = None
    ) -> PartitionLog:
        self.log = PartitionLog.open(
            self.disk,
            str(self.folder),
            PARTITION,
            self.config,
            self.now_ms,
            clean,
            recovery_point=recovery_point,
            high_watermark=high_watermark,
        )
        return self.log

    def kill(self, *, high_watermark: int | None = None) -> PartitionLog:
        """End without closing anything, and start again: what a killed process leaves."""
        return self.open(high_watermark=high_watermark)

    def restart(self, *, high_watermark: int | None = None) -> PartitionLog:
        self.log.close()
        return self.open(clean=True, high_watermark=high_watermark)

    def copy(self, target: Path) -> "LogContext":
        """The folder as a crash at this moment leaves it, opened elsewhere."""
        shutil.copytree(self.folder, target)
        other = object.__new__(LogContext)
        other.__dict__.update(self.__dict__, folder=target)
        other.open()
        return other

    def append(
        self,
        data: bytearray | None = None,
        *,
        origin: Origin = Origin.CLIENT,
        transaction_version: int = 0,
        **batch_options: Any,
    ) -> AppendResult:
        return self.log.append(
            batch(**batch_options) if data is None else data,
            leader_epoch=self.leader_epoch,
            now_ms=self.now_ms,
            origin=origin,
            transaction_version=transaction_version,
        )

    def append_well(self, data: bytearray | None = None, **options: Any) -> AppendResult:
        result = self.append(data, **options)
        assert result.error is ErrorCode.none, result
        return result

    def end(
        self,
        producer: int,
        epoch: int,
        *,
        commit: bool = True,
        coordinator_epoch: int = 0,
        transaction_version: int = 0,
    ) -> AppendResult:
        return self.log.append_marker(
            producer,
            epoch,
            coordinator_epoch,
            commit,
            leader_epoch=self.leader_epoch,
            now_ms=self.now_ms,
            transaction_version=transaction_version,
        )

    def remove_expired(self, entries: Iterable[ProducerEntry], now_ms: int) -> int:
        return self.log.producers.remove_expired(
            entries, now_ms, self.config.producer_id_expiration_ms
        )

    def all_bytes(self) -> bytes:
        return read_all(self.log)

    def headers(self) -> list[BatchHeader]:
        return [header for _, header in iter_headers(self.all_bytes())]

    def records(self) -> list[Record]:
        """All records, markers too."""
        data = self.all_bytes()
        return [
            record
            for position, header in iter_headers(data)
            for record in iter_records(data, position, header)
        ]

    def values(self) -> list[bytes | None]:
        return [record.value for record in self.records()]


def read_all(log: PartitionLog, max_bytes: int = 1 << 20) -> bytes:
    """Everything from the log's start to its end, fetch by fetch."""
    offset, parts = log.log_start_offset, []
    while offset < log.log_end_offset:
        data = bytes(log.read(offset, max_bytes, upper_bound=log.log_end_offset))
        assert data, f"nothing at {offset} of {log.log_end_offset}"
        parts.append(data)
        offset = [header for _, header in iter_headers(data)][-1].next_offset
    return b"".join(parts)
