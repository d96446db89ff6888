"""A compacted log, with short words for what tests do to it."""

from pathlib import Path
from typing import Any

from oncelog.core.errors import ErrorCode
from oncelog.protocol.batch import iter_headers
from oncelog.protocol.record import Record, build_batch, iter_records, read_end_marker
from oncelog.runtime import Disk
from oncelog.storage import LogConfig
from oncelog.storage.cleaner import CleanerSettings, CleanerStats, clean_log
from tests.unit.storage.context import NOW_MS, LogContext, read_all

RETENTION_MS = 1000

Pair = tuple[str, str | None]


class CompactedLog(LogContext):
    """Segments are sealed with `seal`. `clean` cleans all that may be cleaned."""

    def __init__(self, folder: Path, disk: Disk | None = None, **settings: Any) -> None:
        settings = {
            "cleanup_policy": frozenset({"compact"}),
            "delete_retention_ms": RETENTION_MS,
            **settings,
        }
        super().__init__(folder, disk, **settings)
        self.clean_offset = 0
        self.sequences: dict[tuple[int, int], int] = {}
        self.stats = CleanerStats()

    def put(self, *pairs: Pair, producer: int = -1, epoch: int = 0, codec: str = "none") -> int:
        """Append one batch of these keys and values, None for a tombstone; its first offset."""
        return self._write(pairs, producer, epoch, codec, transactional=False)

    def put_in_transaction(
        self, *pairs: Pair, producer: int, epoch: int = 0, codec: str = "none"
    ) -> int:
        return self._write(pairs, producer, epoch, codec, transactional=True)

    def _write(
        self,
        pairs: tuple[Pair, ...],
        producer: int,
        epoch: int,
        codec: str,
        *,
        transactional: bool,
    ) -> int:
        records = [
            Record(0, self.now_ms, key.encode(), None if value is None else value.encode())
            for key, value in pairs
        ]
        sequence = self.sequences.get((producer, epoch), 0)
        data = build_batch(
            records,
            producer_id=producer,
            producer_epoch=epoch if producer >= 0 else -1,
            base_sequence=sequence if producer >= 0 else -1,
            transactional=transactional,
            codec=codec,
        )
        self.sequences[producer, epoch] = sequence + len(records)
        return self.append_well(data).base_offset

    def commit(self, producer: int, epoch: int = 0) -> None:
        assert self.end(producer, epoch).error is ErrorCode.none

    def abort(self, producer: int, epoch: int = 0) -> None:
        assert self.end(producer, epoch, commit=False).error is ErrorCode.none

    def seal(self, key: str = "seal") -> None:
        """End the active segment: a small one begins with this record."""
        whole = self.log.config
        self.log.config = LogConfig(segment_bytes=100, cleanup_policy=whole.cleanup_policy)
        self.put((key, "s"))
        self.log.config = whole

    def clean(self, **settings: Any) -> int:
        self.clean_offset, self.stats = clean_log(
            self.disk,
            self.log,
            self.now_ms,
            clean_offset=self.clean_offset,
            settings=CleanerSettings(**settings),
        )
        return self.clean_offset

    def committed(self) -> list[tuple[int, str, str | None]]:
        """(offset, key, value) of each record that a read_committed reader sees."""
        return committed_records(self)

    def pairs(self) -> list[Pair]:
        return [(key, value) for _, key, value in self.committed() if key != "seal"]

    def markers(self) -> list[int]:
        """Producers of the end markers that are left, in order."""
        return [header.producer_id for header in self.headers() if header.is_control]

    def later(self, ms: int) -> None:
        self.now_ms += ms


def committed_records(ctx: LogContext) -> list[tuple[int, str, str | None]]:
    """As a consumer decides it: by the list of aborted transactions and the markers."""
    log = ctx.log
    data = read_all(log)
    stable = log.last_stable_offset(log.log_end_offset)
    coming = sorted(
        log.aborted_transactions(log.log_start_offset, log.log_end_offset),
        key=lambda entry: entry.first_offset,
    )
    aborted: set[int] = set()
    seen = []
    for position, header in iter_headers(data):
        if header.base_offset >= stable:
            break
        while coming and coming[0].first_offset <= header.last_offset:
            aborted.add(coming.pop(0).producer_id)
        records = list(iter_records(data, position, header))
        if header.is_control:
            marker = read_end_marker(records[0]) if records else None
            if marker is not None and not marker.commit:
                aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborted):
            for record in records:
                assert record.key is not None
                value = None if record.value is None else record.value.decode()
                seen.append((record.offset, record.key.decode(), value))
    return seen


__all__ = ["NOW_MS", "RETENTION_MS", "CompactedLog", "committed_records"]
