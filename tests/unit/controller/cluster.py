"""A cluster's metadata by hand: brokers, one topic, and what decisions make of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar
from uuid import UUID

from oncelog.controller.contents import Contents
from oncelog.controller.decision import (
    ControllerDecision,
    ControllerEvent,
    ControllerNotice,
    DecisionContext,
    Put,
)
from oncelog.controller.decisions import decide
from oncelog.controller.events import BrokerRegistered
from oncelog.controller.image import (
    BrokerImage,
    ImageDelta,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from oncelog.core.config import BrokerConfig
from oncelog.core.ids import TopicPartition

ID = UUID(int=1)
T0 = TopicPartition("t", 0)
MIN_ISR, UNCLEAN = "min.insync.replicas", "unclean.leader.election.enable"

ReplyT = TypeVar("ReplyT")


def broker(broker_id: int, epoch: int = 1, **more: Any) -> BrokerImage:
    """A registration; its epoch is the number of the broker's life."""
    return BrokerImage(broker_id, "h", 9092, broker_epoch=epoch, **more)


class Metadata:
    """What the store says, and how each decision changes it."""

    def __init__(
        self,
        *partitions: PartitionImage,
        live: Iterable[int | BrokerImage] = (1, 2, 3),
        config: Mapping[str, str] | None = None,
        others: Iterable[TopicImage] = (),
        **more: Any,
    ) -> None:
        topics = [TopicImage("t", ID, partitions, config or {})] if partitions else []
        self.context = DecisionContext(BrokerConfig({}), (UUID(int=7),) * 3)
        self.notices: list[ControllerNotice] = []
        self.contents = Contents(
            MetadataImage(
                cluster_id="c",
                topics=[*topics, *others],
                brokers=[one if isinstance(one, BrokerImage) else broker(one) for one in live],
                **{"directories": {number: frozenset({"d"}) for number in (1, 2, 3)}} | more,
            )
        )

    @property
    def image(self) -> MetadataImage:
        return self.contents.image

    @property
    def states(self) -> tuple[PartitionImage, ...]:
        return self.image.topics["t"].partitions

    @property
    def state(self) -> PartitionImage:
        (state,) = self.states
        return state

    def warnings(self) -> list[str]:
        return [notice.text for notice in self.notices if notice.is_warning]

    def live(self, *brokers: BrokerImage) -> None:
        """Change which brokers are registered, as the store's sessions would."""
        image = self.image
        live = MetadataImage(cluster_id="c", brokers=brokers).brokers
        self.contents.image = image.after(ImageDelta(), brokers=live)

    def write(self, writes: Iterable[Put]) -> None:
        writes = list(writes)
        assert len({path for path, _ in writes}) == len(writes), "a store takes each path once"
        entries = [(path, value, 0 if value is None else 1) for path, value in writes]
        self.contents.take(entries, self.image.revision + 1)

    def decide(self, event: ControllerEvent[ReplyT]) -> ControllerDecision[ReplyT]:
        return decide(self.image, event, self.context)

    def submit(self, event: ControllerEvent[ReplyT]) -> ReplyT:
        """Decide and write, and keep the notices."""
        decision = self.decide(event)
        self.write(decision.writes)
        self.notices += decision.notices
        return decision.reply


def registration(broker_id: int, epoch: int = 1, **more: Any) -> BrokerRegistered:
    """A clean one of a broker that knows nothing else."""
    plain = BrokerRegistered(broker_id, epoch, frozenset({"d"}), True, {}, {}, {})
    return replace(plain, **more)
