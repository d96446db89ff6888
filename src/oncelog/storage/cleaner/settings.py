"""The cleaner's settings, with Kafka's names and defaults (D10)."""

from dataclasses import dataclass

__all__ = ["CleanerSettings"]

_MB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class CleanerSettings:
    """`log.cleaner.dedupe.buffer.size` is `dedupe_buffer_bytes` here, and so on.

    Both buffers are those of one cleaner: the broker divides by `log.cleaner.threads`.
    """

    dedupe_buffer_bytes: int = 128 * _MB
    load_factor: float = 0.9
    io_buffer_bytes: int = _MB // 2
