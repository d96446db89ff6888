"""Defines the events of a cluster's replicas: what the controller wrote, and how logs differ.

Brokers are named by their ids, as in the store; `broker_name` is how a history names them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from oncelog.core.ids import TopicPartition
from oncelog.simulation.history import Event

__all__ = [
    "DIVERGED",
    "FORGOTTEN",
    "LACKING",
    "TRUNCATED",
    "BrokerDrained",
    "LogDiffers",
    "PartitionChanged",
    "ReassignmentAnswered",
    "ReassignmentAsked",
    "StaleAnswer",
    "UncleanElectionAsked",
    "broker_name",
]

DIVERGED: Final = "replicas differ below the high watermark"
LACKING: Final = "a leader lacks what is committed"
FORGOTTEN: Final = "a leader lacks what was acknowledged"
TRUNCATED: Final = "what was below the high watermark was truncated"


def broker_name(broker_id: int) -> str:
    """Return how the history names a broker."""
    return f"broker-{broker_id}"


@dataclass(frozen=True, slots=True)
class PartitionChanged(Event):
    """The state of a partition with several replicas, as it was written to the store.

    `excluded` are the brokers that the rules keep out of an ISR by what the writer had read of the
    store: without a registration, shutting down, or back with a log that may have lost its end.
    """

    topic_partition: TopicPartition
    topic_id: str
    replicas: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    eligible: tuple[int, ...] = ()
    suspects: tuple[int, ...] = ()
    excluded: tuple[int, ...] = ()
    doubted: tuple[int, ...] = ()
    logs: tuple[tuple[int, tuple[int, int]], ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    removed: tuple[int, ...] = ()

    @property
    def is_reassigned(self) -> bool:
        """Whether a reassignment is under way."""
        return bool(self.adding or self.removing)

    @property
    def goal(self) -> tuple[int, ...]:
        """The replicas once the reassignment that is under way is done."""
        return tuple(broker for broker in self.replicas if broker not in self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        """The replicas once it is cancelled."""
        return tuple(broker for broker in self.replicas if broker not in self.adding)

    @property
    def has_all(self) -> bool:
        """Whether all replicas that stay are in the ISR, or cannot be."""
        return {*self.goal} <= {*self.isr, *self.excluded}

    def completes(self, before: PartitionChanged) -> bool:
        """Whether the reassignment that was under way before is done with this state.

        A member that shuts down leaves the ISR at once.
        """
        is_done = before.is_reassigned and self.replicas == before.goal
        return is_done and self.has_all

    @property
    def holders(self) -> frozenset[int]:
        """The brokers that have every committed record, as far as the controller knows."""
        return frozenset((*self.isr, *self.eligible)) or frozenset(self.suspects)

    def sure_before(self, after: PartitionChanged) -> frozenset[int]:
        """The brokers that had every committed record when the write of `after` was decided."""
        return frozenset((*self.isr, *self.eligible)).difference(after.doubted)


@dataclass(frozen=True, slots=True)
class BrokerDrained(Event):
    """An operator was told that a broker has no replica, and it may be stopped for good."""

    broker: int


@dataclass(frozen=True, slots=True)
class StaleAnswer(Event):
    """A coordinator answered by its state alone, while one of a later leader epoch served."""

    topic_partition: TopicPartition
    leader_epoch: int
    later_epoch: int
    asked: str


@dataclass(frozen=True, slots=True)
class UncleanElectionAsked(Event):
    """An operator is about to give up what was on a lost disk alone, and to have others lead."""

    topic_partition: TopicPartition


@dataclass(frozen=True, slots=True)
class ReassignmentAsked(Event):
    """An operator is about to ask once for other replicas; None: to cancel what is under way."""

    topic_partition: TopicPartition
    replicas: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class ReassignmentAnswered(Event):
    """What the operator was told of its last request; `error` "" where it was accepted."""

    topic_partition: TopicPartition
    replicas: tuple[int, ...] | None
    error: str


@dataclass(frozen=True, slots=True)
class LogDiffers(Event):
    """The log of a broker's replica is not what is committed; `known_s`: since when it is.

    `what` is one of the four kinds above.
    """

    topic_partition: TopicPartition
    offset: int
    what: str
    particulars: str
    known_s: float
