"""Coordinators that have been replaced, and what they answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from oncelog.broker.partitions.partition import Partition
from oncelog.coordinator.shard import CoordinatorRecord, Decision, Reply
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.core.pending import Pending
from oncelog.simulation.replaced import CoordinatorEpochs, ReplacedCoordinators

LABEL = TopicPartition("__consumer_offsets", 0)


def partition(topic_id: str = "id") -> Partition:
    state = SimpleNamespace(topic_id=topic_id)
    return cast("Partition", SimpleNamespace(topic_partition=LABEL, state=state))


class Asked:
    """Coordinators of two brokers; the first one, in epoch 3, decides what it was asked."""

    def __init__(self) -> None:
        epochs: CoordinatorEpochs = {}
        self.told: list[tuple[object, ...]] = []
        self.first, self.second = (
            ReplacedCoordinators(epochs, lambda *told: self.told.append(told)) for _ in range(2)
        )
        self.first.serves(partition(), 3)
        self.promise: Pending[Any] = Pending(str, holds_back=True, refuse=str)

    def decides(self, *records: CoordinatorRecord) -> Any:
        decision: Decision[str, str, str] = Decision(records, (Reply(self.promise, "stable"),))
        decided = self.first.heard(partition(), 3, "a question", decision)
        (reply,) = decided.replies
        assert reply.value == "stable"
        return reply.token


def test_a_coordinator_of_a_later_epoch_makes_answers_stale() -> None:
    asked = Asked()
    asked.second.serves(partition(), 4)
    asked.decides().complete("stable")
    assert asked.told == [(LABEL, 3, 4, "str")]
    assert asked.promise.response() == "stable"


@pytest.mark.parametrize(("epoch", "topic_id"), [(2, "id"), (3, "id"), (4, "another")])
def test_no_other_coordinator_does(epoch: int, topic_id: str) -> None:
    asked = Asked()
    asked.second.serves(partition(topic_id), epoch)
    asked.decides().complete("stable")
    assert asked.told == []


def test_a_refusal_tells_nothing() -> None:
    asked = Asked()
    asked.second.serves(partition(), 4)
    asked.decides().fail(ErrorCode.not_coordinator)
    assert asked.told == []
    assert asked.promise.done


def test_nobody_hears_what_a_closed_connection_is_sent() -> None:
    asked = Asked()
    asked.second.serves(partition(), 4)
    asked.promise.drop()
    asked.decides().complete("stable")
    assert asked.told == []


def test_an_append_is_confirmed_by_its_commit() -> None:
    asked = Asked()
    asked.second.serves(partition(), 4)
    assert asked.decides(CoordinatorRecord(b"", b"")) is asked.promise
