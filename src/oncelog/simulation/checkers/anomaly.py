"""Defines the promises of a run, and the findings of a checker."""

from __future__ import annotations

from dataclasses import dataclass

from oncelog.core.ids import TopicPartition
from oncelog.simulation.history import Value

__all__ = ["Anomaly", "Promise", "found"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What a run promises, by its configuration and its faults. Times are seconds of the run.

    `power_losses_s`: losses of power, each with unsynced bytes and names. `damage_s`: flipped bits
    and truncated files in synced data. `storage_failures_s`: a failed write or fsync, or a full
    disk, after which the folder is offline until the broker restarts. `last_fault_s` is when the
    last fault was healed; all clients settle within `settle_bound_s` after it. `retention` has the
    topics whose segments expire by age or size. A member under KIP-848 may be silent for
    `member_session_s`.
    """

    flush_every_message: bool
    power_losses_s: tuple[float, ...] = ()
    damage_s: tuple[float, ...] = ()
    storage_failures_s: tuple[float, ...] = ()
    unclean_elections: bool = False
    last_fault_s: float = 0.0
    settle_bound_s: float
    member_session_s: float = 45.0
    retention: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One promise that did not hold.

    `kind` is the checker's name. `detail` begins with a text that is the same in every run, up to
    the first colon; details follow. `allowed` is "" or why the run's configuration did not promise
    it.
    """

    kind: str
    detail: str
    at_s: float
    who: str
    topic_partition: TopicPartition | None
    offset: int
    values: tuple[Value, ...]
    allowed: str

    @property
    def signature(self) -> str:
        """Return the kind and the fixed part of `detail`: the same for the same defect."""
        return f"{self.kind}: {self.detail.split(':', 1)[0]}"


def found(
    kind: str,
    what: str,
    particulars: str = "",
    *,
    at_s: float,
    who: str = "",
    topic_partition: TopicPartition | None = None,
    offset: int = -1,
    values: tuple[Value, ...] = (),
    allowed: str = "",
) -> Anomaly:
    """Return an anomaly; `what` is the fixed part of `detail`, without a colon."""
    detail = f"{what}: {particulars}" if particulars else what
    return Anomaly(kind, detail, at_s, who, topic_partition, offset, values, allowed)
