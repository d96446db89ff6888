"""What a log answers to appends and reads, and why it cannot."""

from collections.abc import Sequence
from typing import NamedTuple

from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.storage.producer_state import Rejection

__all__ = ["AppendResult", "CorruptBatch", "OffsetOutOfRange", "answer_to"]


class AppendResult(NamedTuple):
    """The answer to an append. Offsets are -1 and nothing was written when `error` is not none.

    A duplicate is no error: it carries the offsets of the batch that is in the log.
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
    """The answer to a batch that the producer's state rejected.

    That is its error, or for a duplicate the place of the batch in the log. `is_stamped`: the topic
    has LogAppendTime, so the answer tells the time as well.
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
    """A place in a log that holds no sound batch: its offsets cannot be read.

    What stands in front of it and behind it can. It is damage of one place, not a failing disk: the
    folder stays on line, and clients are told CORRUPT_MESSAGE for this partition.
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
