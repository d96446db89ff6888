"""Folders of replicas that are gone, and what allows it."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import cast

import pytest

from oncelog.core.ids import TopicPartition
from oncelog.simulation.node import BrokerNode
from oncelog.simulation.replica_folders import FolderAudit
from oncelog.simulation.watched_store import WatchedStore

T0 = TopicPartition("t", 0)
STRAY = f"t-0.{'0' * 32}-stray"


class World:
    """One broker's folders, and what the store says of one topic."""

    def __init__(self) -> None:
        self.names = ["t-0"]
        self.applied = SimpleNamespace(partition_epoch=3)
        self.store = SimpleNamespace(
            states={T0: SimpleNamespace(topic_id="id", partition_epoch=3, replicas=(0, 1))},
            removals=Counter(),
        )
        self.node = SimpleNamespace(
            name="broker-1",
            index=1,
            losses_count=0,
            disk=SimpleNamespace(names=lambda _: self.names),
            broker=SimpleNamespace(image=SimpleNamespace(partition=lambda *_: self.applied)),
        )
        self.audit = FolderAudit(cast("WatchedStore", self.store))
        assert self.found() == []

    def found(self) -> list[str]:
        self.names = sorted(self.names)
        return [text for _, text in self.audit.look([cast("BrokerNode", self.node)])]

    def remove(self) -> None:
        self.store.removals[T0, "id", 1] += 1

    def delete(self) -> None:
        del self.store.states[T0]

    def make_again(self) -> None:
        self.store.states[T0] = SimpleNamespace(topic_id="another")

    def replicate(self) -> None:
        """The store had not told of a topic of one replica; another broker has that one now."""
        self.store.states = {}
        self.lose_disk()
        assert self.found() == []
        self.remove()
        self.store.states[T0] = SimpleNamespace(topic_id="id", partition_epoch=3, replicas=(0,))
        self.names = [*self.names, "u-0"]
        assert self.found() == []

    def lose_disk(self) -> None:
        self.node.losses_count += 1

    def set_aside(self) -> None:
        self.names = [STRAY, "t-0"]


def test_a_folder_that_nothing_names_is_found() -> None:
    world = World()
    world.names = []
    assert world.found() == ["t-0 is gone, and nothing that was decided names it"]
    assert world.found() == []


@pytest.mark.parametrize(
    "why", ["remove", "delete", "make_again", "lose_disk", "set_aside", "replicate"]
)
def test_a_folder_goes_by_a_decision(why: str) -> None:
    world = World()
    getattr(world, why)()
    world.names = [name for name in world.names if name != "t-0"]
    assert world.found() == []


def test_a_decision_names_one_folder_only() -> None:
    world = World()
    world.remove()
    world.names = []
    assert world.found() == []
    world.names = ["t-0"]
    assert world.found() == []
    world.names = []
    assert world.found() == ["t-0 is gone, and nothing that was decided names it"]


def test_a_broker_behind_the_store_deletes_what_it_makes() -> None:
    world = World()
    world.remove()
    world.names = []
    assert world.found() == []
    world.applied.partition_epoch = 2
    world.names = ["t-0"]
    assert world.found() == []
    world.names = []
    assert world.found() == []
