"""The shape of the controller's decisions: `decide(image, event, context) -> ControllerDecision`.

A decision is a value. The broker that holds the controller's office writes it in one atomic step,
on condition that nothing it replaces has changed since, logs its notices and returns its reply.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from oncelog.controller.image import MetadataImage
from oncelog.core.config import BrokerConfig
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicId

__all__ = [
    "ChangeOutcome",
    "ControllerDecision",
    "ControllerEvent",
    "ControllerNotice",
    "Decide",
    "DecisionContext",
    "Put",
]

ReplyT = TypeVar("ReplyT")
EventT = TypeVar("EventT", contravariant=True)


class ControllerEvent(Generic[ReplyT]):
    """Something that only the controller can decide on. `ReplyT` is what its sender receives.

    An event is a frozen value, so it can be sent to another broker, and decided on again after
    another writer was faster.
    """

    __slots__ = ()


class Put(NamedTuple):
    """A value of the store to write; None deletes it."""

    path: str
    value: bytes | None


class ControllerNotice(NamedTuple):
    """A line for the log, once the decision is written."""

    text: str
    is_warning: bool = False


class ChangeOutcome(NamedTuple):
    """The reply to an event that concerns one thing: done, or the error with its text."""

    error: ErrorCode = ErrorCode.none
    message: str | None = None


@dataclass(frozen=True, slots=True)
class ControllerDecision(Generic[ReplyT]):
    """The writes of one atomic step; `reply` is valid once they are done."""

    reply: ReplyT
    writes: tuple[Put, ...] = ()
    notices: tuple[ControllerNotice, ...] = ()


@dataclass(frozen=True, slots=True)
class DecisionContext:
    """What a decision needs besides the image and the event.

    `config` is that of the controller's broker (defaults and limits); `fresh_ids` has an id for
    each topic that the event may create.
    """

    config: BrokerConfig
    fresh_ids: tuple[TopicId, ...] = ()
    no_room: str | None = None
    """Why no log directory can take a new partition; None while one can."""


Decide = Callable[[MetadataImage, EventT, DecisionContext], ControllerDecision[ReplyT]]
