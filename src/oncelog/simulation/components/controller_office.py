"""One controller that decides and writes, and the requests for an ISR that it must take.

See `controller`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oncelog.controller import layout
from oncelog.controller.contents import Contents
from oncelog.controller.decision import ControllerDecision, ControllerEvent, DecisionContext
from oncelog.controller.events import AlterPartition, IsrChange
from oncelog.controller.image import MetadataImage
from oncelog.core.config import BrokerConfig
from oncelog.core.ids import TopicId
from oncelog.metadata.state import StoreState
from oncelog.metadata.store import Check, Write

__all__ = ["Decide", "OfficeHolder", "may_be"]

Decide = Callable[[MetadataImage, Any, DecisionContext], ControllerDecision[Any]]
"""The decisions on trial; tests plant others."""


class OfficeHolder:
    """One that holds the office, until another one has claimed it."""

    def __init__(self, store: StoreState, decided: Decide) -> None:
        self._store = store
        self._decide = decided
        self._contents = Contents(MetadataImage(cluster_id="c"))
        self.read()
        version = self._contents.version_of(layout.CONTROLLER_EPOCH_PATH)
        epoch = layout.encode_number(self.image.controller_epoch + 1)
        store.write_all([Write(layout.CONTROLLER_EPOCH_PATH, epoch, version)])
        self.read()
        self._fence = Check(layout.CONTROLLER_EPOCH_PATH, version + 1)

    @property
    def image(self) -> MetadataImage:
        """What it has read."""
        return self._contents.image

    def read(self) -> None:
        """Read what has changed in the store."""
        changes = self._store.changes(self.image.revision)
        self._contents.take(changes.entries, changes.revision)

    def decide(self, event: ControllerEvent[Any], fresh: TopicId) -> ControllerDecision[Any]:
        """Decide by what it has read."""
        return self._decide(self.image, event, DecisionContext(BrokerConfig({}), (fresh,)))

    def write(self, decision: ControllerDecision[Any], count: int) -> list[Write]:
        """Write the first so many of what is decided. Raises `Conflict`, `Fenced`."""
        puts = decision.writes[:count]
        writes = [Write(*put, self._contents.version_of(put.path)) for put in puts]
        prefix = layout.BROKERS_PREFIX
        ids = [int(w.path.removeprefix(prefix)) for w in writes if w.path.startswith(prefix)]
        epochs = map(layout.broker_epoch_path, ids)
        checks = [Check(path, self._contents.version_of(path)) for path in epochs]
        self._store.write_all(writes, checks, self._fence)
        return writes


def may_be(image: MetadataImage, event: AlterPartition, change: IsrChange) -> bool:
    """Whether what is asked for may be, by the registrations and the state alone."""
    brokers = image.brokers
    topic = image.topic_by_id(change.topic_id)
    sender = brokers.get(event.broker_id)
    if topic is None or sender is None or sender.broker_epoch != event.broker_epoch:
        return False
    state = topic.partitions[change.partition]
    epochs = change.leader_epoch, change.partition_epoch
    ids = [member.broker_id for member in change.isr]
    if state.leader != event.broker_id or event.broker_id not in ids:
        return False
    if epochs != (state.leader_epoch, state.partition_epoch) or not {*ids} <= {*state.replicas}:
        return False
    for member in change.isr:
        found = brokers.get(member.broker_id)
        is_active = found is not None and found.broker_epoch == member.broker_epoch
        is_ready = found is not None and found.is_clean and not found.is_shutting_down
        is_on_line = member.broker_id not in state.offline_replicas
        if member.broker_id != event.broker_id and not (is_active and is_ready and is_on_line):
            return False
    return True
