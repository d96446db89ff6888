"""Reassignments of the controllers that are simulated alone: a slip of theirs is seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from oncelog.controller import layout
from oncelog.controller.decision import ControllerDecision, DecisionContext, Put
from oncelog.controller.decisions import decide
from oncelog.controller.image import MetadataImage, PartitionImage
from tests.unit.simulation.components.test_controller import found

Slip = Callable[[PartitionImage, PartitionImage], PartitionImage]


def slipping(slip: Slip) -> Any:
    """Decisions whose states are changed by a slip, given the state before and the next one."""

    def decided(image: MetadataImage, event: Any, context: DecisionContext) -> Any:
        decision: ControllerDecision[Any] = decide(image, event, context)
        writes = []
        for path, value in decision.writes:
            after = value
            if value is not None and path.startswith(layout.TOPICS_PREFIX):
                name, number = layout.partition_of(path)
                before = None if number is None else image.partition(name, number)
                if before is not None:
                    after = layout.encode_state(slip(before, layout.decode_state(value)))
            writes.append(Put(path, after))
        return replace(decision, writes=tuple(writes))

    return decided


def forgets_who_goes(before: PartitionImage, after: PartitionImage) -> PartitionImage:
    return replace(after, removed=before.removed)


def goes_in_one_epoch(before: PartitionImage, after: PartitionImage) -> PartitionImage:
    gone = {*before.replicas} - {*after.replicas}
    return replace(after, leader_epoch=before.leader_epoch) if gone else after


def is_done_at_once(before: PartitionImage, after: PartitionImage) -> PartitionImage:
    left = tuple(broker for broker in after.replicas if broker not in after.removing)
    removed = tuple(sorted({*after.removed, *after.removing}))
    isr = tuple(broker for broker in after.isr if broker in left)
    if not after.adding or not after.removing or after.leader not in left:
        return after
    done = replace(after, replicas=left, isr=isr, adding=(), removing=(), removed=removed)
    return replace(done, leader_epoch=before.leader_epoch + 1)


@pytest.mark.parametrize(
    ("slip", "text"),
    [
        (forgets_who_goes, "as removed are noted"),
        (goes_in_one_epoch, "a replica is removed in the same leader epoch"),
        (is_done_at_once, "its replicas are"),
    ],
)
def test_a_slip_in_a_reassignment_is_found(slip: Slip, text: str) -> None:
    texts = found(slipping(slip))
    assert any(text in each for each in texts), texts
