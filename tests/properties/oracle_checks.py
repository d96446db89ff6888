"""Compares both logs with what the bytes of their files imply, whatever the model says.

See `oncelog.simulation.oracle`. The high watermark is where replicas would have it: it follows the
end of a log at a distance, and never goes back.
"""

from collections.abc import Iterator

from oncelog.core.ids import TopicPartition
from oncelog.simulation.agreement import partitions
from oncelog.simulation.agreement.folders import folder as folder_of
from oncelog.simulation.agreement.partitions import Shown
from oncelog.simulation.oracle.history import RawLog
from oncelog.storage import PartitionLog
from tests.properties.data_folder import DIRECTORY, DataFolder
from tests.properties.log_model import LogModel

RANGES_COUNT = 12
"""Readers' ranges per look, beside those around the last stable offset."""


class Oracles:
    """The files of both logs as they were read last, and their high watermarks."""

    def __init__(self, distance: int) -> None:
        self._distance = distance
        self._raw: dict[TopicPartition, RawLog] = {}
        self._watermarks: dict[TopicPartition, int] = {}

    def began(self) -> None:
        """Anything may have been cut off, rebuilt or asked since the last look."""
        self._raw.clear()
        self._watermarks.clear()

    def caught_up(self, partition: TopicPartition, log: PartitionLog) -> None:
        """The log was asked for its last stable offset at its end, or was cut there."""
        self._watermarks[partition] = log.log_end_offset

    def check(self, folder: DataFolder, partition: TopicPartition, model: LogModel) -> None:
        """Compare one log, unless a bit of it was flipped."""
        if model.hit is not None:
            return
        log = folder.logs[partition]
        raw = self._raw.setdefault(partition, RawLog())
        path = f"{DIRECTORY}/{partition}"
        raw.read(folder.machine.whole.names(path), lambda name: _bytes_of(folder, path, name))
        shown = Shown(
            first_offset=raw.first_offset,
            is_thinned=model.compacted,
            epochs_from=model.start_highest,
            batches_from=model.forgettable_end,
        )
        wrong = [
            *partitions.producers(raw.state, log, shown),
            *partitions.leader_epochs(raw.state, log, shown),
            *partitions.aborted_transactions(raw.state, log, _ranges(log), shown),
            *self._stable(partition, log, raw, shown),
        ]
        assert not wrong, f"{partition}: " + "; ".join(wrong)

    def _stable(
        self, partition: TopicPartition, log: PartitionLog, raw: RawLog, shown: Shown
    ) -> Iterator[str]:
        end = log.log_end_offset
        known = max(min(self._watermarks.get(partition, end), end), log.log_start_offset)
        watermark = max(known, end - self._distance)
        for at in range(known, watermark + 1):
            held = log.last_stable_offset(at)
            yield from partitions.last_stable_offset(
                raw.state, held, at, log.log_start_offset, shown
            )
        self._watermarks[partition] = watermark


def check_files(
    folder: DataFolder, partition: TopicPartition, model: LogModel, *, was_closed: bool
) -> None:
    """Compare the other files of a log's folder with its `.log` files."""
    if model.hit is not None:
        return
    path = f"{DIRECTORY}/{partition}"
    wrong = list(
        folder_of(
            folder.machine.whole.names(path),
            lambda name: _bytes_of(folder, path, name),
            was_closed=was_closed,
            is_thinned=model.compacted,
            log_start=model.start_highest,
        )
    )
    assert not wrong, f"{partition}: " + "; ".join(wrong)


def _bytes_of(folder: DataFolder, path: str, name: str) -> bytes:
    return folder.machine.whole.peek(f"{path}/{name}") or b""


def _ranges(log: PartitionLog) -> Iterator[tuple[int, int]]:
    """Some of all readers' ranges, other ones as the log grows."""
    start, end = log.log_start_offset, log.log_end_offset
    yield start, end
    span = end - start
    for turn in range(min(span, RANGES_COUNT)):
        from_offset = start + (turn * 7 + end) % span
        yield from_offset, from_offset + 1 + (turn * 5 + end) % (end - from_offset)
        yield start, start + 1 + (turn * 3 + end) % span
