"""Defines the options of `exactly_once`."""

from dataclasses import dataclass, field
from typing import Any, Final

from oncelog.protocol.batch import CODEC_NAMES
from oncelog.spark.errors import UsageError
from oncelog.spark.protocol_options import ProtocolOptions

TRANSACTION_TIMEOUT_MS: Final = 300_000
BATCH_SIZE_BYTES: Final = 512 * 1024
MAX_DRIVER_ROWS: Final = 10_000
"""Most rows that a micro-batch is expected to have when the driver collects them."""
DELIVERY_TIMEOUT_MS: Final = 120_000
"""Kafka's default of ``delivery.timeout.ms``."""
MARKER_TOPIC: Final = "__oncelog_markers"
"""Shared by all applications of a cluster; a record's key is the application id."""


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """All options of `exactly_once`."""

    bootstrap_servers: str
    protocol: ProtocolOptions
    topic: str | None
    topics: tuple[str, ...] | None
    max_tasks: int | None
    batch_size: int
    compression_type: str
    transaction_timeout_ms: int
    progress_path: str | None
    client_options: dict[str, Any] = field(default_factory=dict)
    """Kafka's settings of all clients, as `oncelog.spark.client_settings` leaves them."""
    delivery_timeout_ms: int = DELIVERY_TIMEOUT_MS
    max_driver_rows: int = MAX_DRIVER_ROWS

    def producer_options(self) -> dict[str, Any]:
        """Return the options of the producers that send for the sink."""
        timeout_ms = min(self.delivery_timeout_ms, self.transaction_timeout_ms)
        return {"delivery_timeout_ms": timeout_ms, **self.running_options()}

    def running_options(self) -> dict[str, Any]:
        """Return the options of a running query's clients.

        A broker may restart whenever one of its processes begins; the checks before its start found
        a wrong address.
        """
        if FIRST_CONTACT in self.client_options:
            return self.client_options
        return {"first_contact_ms": None, **self.client_options}


FIRST_CONTACT: Final = "oncelog.first.contact.ms"

_LEAST: Final = {
    "batch_size": 1,
    "max_tasks": 1,
    "transaction_timeout_ms": 1,
    "delivery_timeout_ms": 1,
    "max_driver_rows": 0,
}


def check_options(options: SinkOptions) -> None:
    """Refuse invalid values, without a request to a cluster."""
    protocol = options.protocol
    for name, least in _LEAST.items():
        value = getattr(options, name)
        if value is not None and value < least:
            raise UsageError(f"{name}={value} must be at least {least}")
    marker_topic = None if protocol.marker_partition is None else protocol.marker_partition.topic
    if options.compression_type not in CODEC_NAMES:
        raise UsageError(
            f"compression_type {options.compression_type!r} is unknown; known are "
            f"{', '.join(CODEC_NAMES)}"
        )
    if marker_topic is not None and marker_topic in (options.topic, *(options.topics or ())):
        raise UsageError(
            f"topic {marker_topic!r} holds the markers, so no rows go there: name another "
            "marker_topic"
        )
    if marker_topic is None and not protocol.commit_source_offsets:
        raise UsageError(
            "commit_source_offsets=False leaves nothing but a marker_topic to carry the batch "
            "marker: name one"
        )
