"""What tests of coordinators need to decide an event by hand."""

from typing import Any, TypeAlias

from oncelog.coordinator import (
    CoordinatorMetadata,
    CoordinatorShard,
    EventContext,
    EventProcessor,
    Output,
    Token,
)

AnyShard: TypeAlias = CoordinatorShard[Any, Any, Any]
AnyProcessor: TypeAlias = EventProcessor[Any, Any, Any]
AnyOutput: TypeAlias = Output[Any, Any]


def at(now_ms: int = 0, token: Token | None = None) -> EventContext:
    """The context of an event at one time."""
    return EventContext(now_ms, token, CoordinatorMetadata())


def processor_of(shard: AnyShard, append_wait_ms_max: int | None = None) -> AnyProcessor:
    """A processor for a shard that needs no producer ids."""
    return EventProcessor(shard, CoordinatorMetadata(), append_wait_ms_max)
