"""What `exactly_once` was given."""

from dataclasses import dataclass, field
from typing import Any, Final

from oncelog.spark.driver import DriverOptions
from oncelog.spark.progress import CrashPoint

TRANSACTION_TIMEOUT_MS: Final = 300_000
BATCH_SIZE_BYTES: Final = 512 * 1024


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Everything `exactly_once` was given."""

    bootstrap_servers: str
    driver: DriverOptions
    topic: str | None
    topics: tuple[str, ...] | None
    max_tasks: int | None
    batch_size: int
    compression_type: str
    transaction_timeout_ms: int
    progress_path: str | None
    crash_point: CrashPoint | None
    client_options: dict[str, Any] = field(default_factory=dict)
