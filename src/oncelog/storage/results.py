"""Defines the results and errors of a log's appends and reads."""

from collections.abc import Sequence
from typing import NamedTuple

from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.storage.producer_state import Rejection

__all__ = ["AppendResult", "CorruptBatch", "OffsetOutOfRange", "answer_to"]


class AppendResult(NamedTuple):
    """The result of an append. With an error, offsets are -1 and no batch was written.

    A duplicate is no error: the result has the offsets of the batch in the log.
    """

    error: ErrorCode
    base_offset: int = -1
    last_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    duplicate: bool = False
    message: str | None = None
    record_errors: Sequence[tuple[int, str]] = ()
    """Indexes of the records at fault, each with what is wrong with it (KIP-467)."""


def answer_to(rejection: Rejection, is_stamped: bool, log_start_offset: int) -> AppendResult:
    """Return the result of a batch that the producer state refused.

    That is its error, or for a duplicate the offsets of the batch in the log. `is_stamped`: the
    topic has LogAppendTime, so the result has the time as well.
    """
    found = rejection.duplicate
    if found is None:
        return AppendResult(
            rejection.error, log_start_offset=log_start_offset, message=rejection.message
        )
    return AppendResult(
        ErrorCode.none,
        found.first_offset,
        found.last_offset,
        found.timestamp_ms if is_stamped else -1,
        log_start_offset,
        duplicate=True,
    )


class OffsetOutOfRange(ProtocolError):  # noqa: N818 - Kafka's name
    """A read below the log's start or beyond its end."""

    def __init__(self, offset: int, start: int, end: int) -> None:
        super().__init__(
            ErrorCode.offset_out_of_range, f"offset {offset} is not within {start} to {end}"
        )


class CorruptBatch(ProtocolError):  # noqa: N818 - names what was found
    """A place in a log has no sound batch: its offsets cannot be read.

    The batches before and after it can. It is damage of one place, not a failing disk: the log
    directory stays on line, and clients get CORRUPT_MESSAGE for this partition.
    """

    def __init__(self, path: str, position: int, offset: int, why: str) -> None:
        super().__init__(
            ErrorCode.corrupt_message,
            f"{path} has no sound batch at byte {position}, from offset {offset} on: {why}",
        )
        self.path = path
        """The `.log` file."""
        self.position = position
        """The byte at which the damage begins."""
        self.offset = offset
        """The first offset that cannot be read."""
