"""Defines what a processor gives its shell to do: appends, replies and effects.

See `oncelog.coordinator.event_processor` for the order in which the shell does it.
"""

from typing import Generic, NamedTuple

from oncelog.coordinator.shard import (
    AppendProducer,
    CoordinatorRecord,
    EffectT,
    Reply,
    ReplyT,
    Token,
)
from oncelog.core.values import value

__all__ = ["Append", "Output"]


@value
class Append:
    """One batch for the internal partition: all of its records are appended, or none.

    `timestamp_ms` is the time of each record. Without records it asks for a fresh producer id.
    """

    append_id: int
    records: tuple[CoordinatorRecord, ...]
    producer: AppendProducer | None
    timestamp_ms: int


class Output(NamedTuple, Generic[ReplyT, EffectT]):
    """What the broker has to do, in the order of the fields.

    `unconfirmed` are the requests among the replies that were decided without an append: no commit
    shows that this broker still led then, so that where another one may lead they wait until that
    is confirmed.

    One call to the processor fills it; afterwards the caller owns it.
    """

    appends: list[Append]
    replies: list[Reply[ReplyT]]
    effects: list[EffectT]
    unconfirmed: list[Token]
