"""Finds folders of replicas that are gone although no one has decided it (D14).

The folder of a partition goes when its topic is deleted, or its replica was removed by a
reassignment. It looks at the disks between two callbacks, of brokers that live or not. A disk that
has lost anything by itself counts from then on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from oncelog.simulation.node import DATA_DIR, BrokerNode
from oncelog.simulation.watched_store import WatchedStore
from oncelog.storage.folder_names import STRAY_SUFFIX, parse_folder_name

__all__ = ["FolderAudit"]

_NO_TOPIC: Final = ""
_ANY_COUNT: Final = -1
"""Of removals: fewer than there can be."""


@dataclass(slots=True)
class _Disk:
    """A broker's disk, as it was seen last."""

    losses_count: int
    names: list[str] = field(default_factory=list)
    held: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Folder -> its topic's id, and the replica's removals, both of the moment it was found."""


class FolderAudit:
    """Looks at all disks of one world. `look` is to be called often."""

    def __init__(self, store: WatchedStore) -> None:
        self._store = store
        self._disks: dict[str, _Disk] = {}

    def look(self, nodes: Sequence[BrokerNode]) -> Iterator[tuple[BrokerNode, str]]:
        """Yield the brokers that have deleted what they were not to, each with what it was."""
        for node in nodes:
            disk = self._disks.get(node.name)
            if disk is None or disk.losses_count != node.losses_count:
                disk = self._disks[node.name] = _Disk(node.losses_count)
            names = node.disk.names(DATA_DIR)
            if names == disk.names:
                continue
            disk.names = names
            present = {name: self._found(name, node) for name in names if parse_folder_name(name)}
            for name in [name for name in disk.held if name not in present]:
                text = self._judge(name, disk.held.pop(name), node, names)
                if text:
                    yield node, text
            self._add(disk.held, present)

    def _add(
        self, held: dict[str, tuple[str, int]], present: Mapping[str, tuple[str, int]]
    ) -> None:
        for name, known in present.items():
            if name not in held or held[name][0] != known[0]:
                held[name] = known

    def _found(self, name: str, node: BrokerNode) -> tuple[str, int]:
        """As `_known`, but for what may be deleted at once.

        That are folders of those who have no replica (any more), and what a broker makes that is
        behind the store.
        """
        topic_id, count = self._known(name, node)
        label = parse_folder_name(name)
        state = None if label is None else self._store.states.get(label)
        image = None if node.broker is None else node.broker.image
        seen = None if label is None or image is None else image.partition(*label)
        if state is None or seen is None or seen.partition_epoch != state.partition_epoch:
            return topic_id, _ANY_COUNT
        if node.index not in state.replicas:
            return topic_id, _ANY_COUNT
        return topic_id, count

    def _known(self, name: str, node: BrokerNode) -> tuple[str, int]:
        """Return the id of the topic that the store has, and how often the replica was removed."""
        label = parse_folder_name(name)
        state = None if label is None else self._store.states.get(label)
        if label is None or state is None:
            return _NO_TOPIC, 0
        return state.topic_id, self._store.removals[label, state.topic_id, node.index]

    def _judge(
        self, name: str, known: tuple[str, int], node: BrokerNode, names: Sequence[str]
    ) -> str:
        topic_id, count = known
        now = self._known(name, node)
        is_deleted = now[0] != topic_id or topic_id == _NO_TOPIC
        is_stray = any(each.startswith(name) and each.endswith(STRAY_SUFFIX) for each in names)
        if is_deleted or is_stray or now[1] > count:
            return ""
        return f"{name} is gone, and nothing that was decided names it"
