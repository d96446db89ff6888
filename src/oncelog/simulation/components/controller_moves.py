"""Reassignments among the steps of simulated controllers, and which replicas a state may have.

See `controller`. An operator asks for other replicas and cancels, by the broker's table or against
it; brokers say what they have deleted, in time or late.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from oncelog.controller.decision import ControllerEvent
from oncelog.controller.events import (
    AlterReassignments,
    ForgetBroker,
    Reassignment,
    RemovedReplica,
    ReplicasRemoved,
)
from oncelog.controller.image import MetadataImage, PartitionImage
from oncelog.core.ids import TopicPartition
from oncelog.simulation.components.controller_model import ExpectedPartition, Facts

__all__ = ["Moves", "wrong_placement"]

Placement = tuple[tuple[int, ...], frozenset[int], frozenset[int]]
"""Replicas in order, who is added, who goes."""


class Moves:
    """The part of `SimulatedControllers` that is an operator of reassignments."""

    _rng: random.Random
    _parts: dict[TopicPartition, ExpectedPartition]
    _epochs: dict[int, int]

    @property
    def _image(self) -> MetadataImage:
        raise NotImplementedError

    def _submit(self, event: ControllerEvent[Any]) -> object | None:
        raise NotImplementedError

    def _reassign(self) -> None:
        """Ask for other replicas of some partitions, or cancel."""
        asked = []
        for label in self._some():
            count = self._rng.choice((1, 2, 3))
            wanted = tuple(self._rng.sample([*self._epochs], count))
            asked.append(Reassignment(label, wanted if self._rng.random() < 0.7 else None))
        if asked:
            self._submit(AlterReassignments(tuple(asked)))

    def _some(self) -> list[TopicPartition]:
        labels = sorted(self._parts)
        is_open = [one for one in labels if _is_open(self._parts[one].state)]
        among = is_open if is_open and self._rng.random() < 0.5 else labels
        return self._rng.sample(among, min(len(among), self._rng.choice((1, 1, 2))))

    def _confirm_removed(self) -> None:
        """Have a broker say that it has deleted what was removed, now and then by an old state."""
        found: dict[int, list[RemovedReplica]] = {}
        for label, part in self._parts.items():
            for broker in part.state.removed:
                epoch = part.state.leader_epoch - (self._rng.random() < 0.2)
                one = RemovedReplica(part.topic_id, label.partition, epoch)
                found.setdefault(broker, []).append(one)
        if found:
            broker = self._rng.choice(sorted(found))
            self._submit(ReplicasRemoved(broker, tuple(found[broker])))


def wrong_placement(
    label: TopicPartition,
    before: PartitionImage,
    after: PartitionImage,
    event: ControllerEvent[Any],
    facts: Facts,
) -> Iterator[str]:
    """Yield what is wrong with the replicas of a state that was written for an event."""
    asked = event.partitions if isinstance(event, AlterReassignments) else ()
    placed, start = _placed(after), _placed(before)
    reached = {start}
    reached.update(_asked(start, one.replicas) for one in asked if one.partition == label)
    for replicas, adding, removing in list(reached):
        done = tuple(broker for broker in replicas if broker not in removing)
        # One that shuts down or has died was in the ISR that was asked for, and leaves it at once.
        able = {broker for broker in done if facts.is_able(broker)}
        if (adding or removing) and able <= {*after.isr}:
            reached.add((done, frozenset(), frozenset()))
    if placed not in reached:
        yield f"its replicas are {placed} after {_placed(before)}, asked for were {asked}"
        return
    noted = must = ({*before.removed} | {*before.replicas}) - {*after.replicas}
    if isinstance(event, ReplicasRemoved):
        must = noted - {event.broker_id}
        said = {(one.partition, one.leader_epoch) for one in event.replicas}
        is_late = (label.partition, before.leader_epoch) not in said
        if is_late and {*after.removed} != {*before.removed}:
            yield "a late confirmation ends the note of a removal"
    if isinstance(event, ForgetBroker):
        must = noted - {event.broker_id}
    if not must <= {*after.removed} <= noted:
        yield f"as removed are noted {after.removed}, not {sorted(must)}"
    if must - {*before.removed} and after.leader_epoch == before.leader_epoch:
        yield "a replica is removed in the same leader epoch"


def _asked(start: Placement, wanted: tuple[int, ...] | None) -> Placement:
    replicas, adding, _ = start
    if wanted is None:
        left = tuple(broker for broker in replicas if broker not in adding)
        return left, frozenset(), frozenset()
    goes = frozenset(replicas) - {*wanted}
    return (*wanted, *sorted(goes)), adding | (frozenset(wanted) - {*replicas}), goes


def _placed(state: PartitionImage) -> Placement:
    return state.replicas, frozenset(state.adding), frozenset(state.removing)


def _is_open(state: PartitionImage) -> bool:
    return bool(state.adding or state.removing)
