"""The settings of the protocol that every exactly-once sink shares."""

from dataclasses import dataclass

from oncelog.core.ids import TopicPartition
from oncelog.spark.errors import UsageError
from oncelog.spark.marker import ACCEPTABLE

__all__ = ["ProtocolOptions"]


@dataclass(frozen=True, slots=True)
class ProtocolOptions:
    """Settings of the protocol; `oncelog.spark.sink.exactly_once` documents them.

    `marker_partition` is of a compacted topic; None leaves the marker to the group's offsets.
    """

    application_id: str
    marker_partition: TopicPartition | None = None
    cluster_id: str | None = None
    """The sink's cluster id, if known."""
    has_group_markers: bool = True
    """Whether a marker may be, or have been, only in a group's offsets, which expire."""
    commit_source_offsets: bool = True
    accept: frozenset[str] = frozenset()
    replaces_query: str | None = None
    write_attempts: int = 3

    def __post_init__(self) -> None:
        """Refuse invalid values, before a sink connects to a cluster."""
        if not self.application_id:
            raise UsageError("application_id is empty")
        if self.write_attempts < 1:
            raise UsageError(f"write_attempts={self.write_attempts} must be at least 1")
        unknown = self.accept - ACCEPTABLE
        if unknown:
            raise UsageError(f"accept={sorted(unknown)} is unknown; known are {sorted(ACCEPTABLE)}")
