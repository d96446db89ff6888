"""The runtime that both coordinators share: decide, append, replay, reload (D2, D7).

Pure: it knows no transactions, groups, sockets or clocks. `shard` defines the interface of a
coordinator's logic, `event_processor` drives one shard for one partition of an internal topic, and
`replay` reduces the log to the records that a load has to apply.
"""

from oncelog.coordinator.event_processor import CoordinatorState, EventProcessor
from oncelog.coordinator.metadata import CoordinatorMetadata
from oncelog.coordinator.output import Append, Output
from oncelog.coordinator.replay import RecordToReplay, ReplayBuffer
from oncelog.coordinator.shard import (
    NOTHING,
    AppendProducer,
    CoordinatorRecord,
    CoordinatorShard,
    Decision,
    EndTransactionMarker,
    EventContext,
    RecordContext,
    Reply,
    Step,
    Token,
    UnknownKind,
    marker_context,
    replies_to,
    reply_at_once,
)

__all__ = [
    "NOTHING",
    "Append",
    "AppendProducer",
    "CoordinatorMetadata",
    "CoordinatorRecord",
    "CoordinatorShard",
    "CoordinatorState",
    "Decision",
    "EndTransactionMarker",
    "EventContext",
    "EventProcessor",
    "Output",
    "RecordContext",
    "RecordToReplay",
    "ReplayBuffer",
    "Reply",
    "Step",
    "Token",
    "UnknownKind",
    "marker_context",
    "replies_to",
    "reply_at_once",
]
