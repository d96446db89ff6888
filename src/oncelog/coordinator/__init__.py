"""The shared runtime of both coordinators: decide, append, apply, reload (D2, D7).

Pure: it knows no transactions, no groups, no sockets and no time. `shard` says what a coordinator's
logic looks like, `event_processor` runs one for one partition of an internal topic, `replay` says
what of the log a processor has to apply when it loads.
"""

from oncelog.coordinator.event_processor import Append, CoordinatorState, EventProcessor, Output
from oncelog.coordinator.replay import EndTransactionMarker, RecordToReplay, ReplayBuffer
from oncelog.coordinator.shard import (
    NOTHING,
    AppendProducer,
    CoordinatorRecord,
    CoordinatorShard,
    Decision,
    EventContext,
    FreshProducerId,
    RecordContext,
    Reply,
    Token,
    UnknownKind,
    answer,
    replies_to,
)

__all__ = [
    "NOTHING",
    "Append",
    "AppendProducer",
    "CoordinatorRecord",
    "CoordinatorShard",
    "CoordinatorState",
    "Decision",
    "EndTransactionMarker",
    "EventContext",
    "EventProcessor",
    "FreshProducerId",
    "Output",
    "RecordContext",
    "RecordToReplay",
    "ReplayBuffer",
    "Reply",
    "Token",
    "UnknownKind",
    "answer",
    "replies_to",
]
