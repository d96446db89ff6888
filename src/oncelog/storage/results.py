"""What a log answers to appends and reads."""

from typing import NamedTuple

from oncelog.core.errors import ErrorCode, ProtocolError

__all__ = ["AppendResult", "OffsetOutOfRange"]


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


class OffsetOutOfRange(ProtocolError):  # noqa: N818 - Kafka's name
    """A read below the log's start or beyond its end."""

    def __init__(self, offset: int, start: int, end: int) -> None:
        super().__init__(
            ErrorCode.offset_out_of_range, f"offset {offset} is not within {start} to {end}"
        )
