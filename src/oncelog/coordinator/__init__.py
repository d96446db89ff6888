"""The shared runtime of both coordinators: decide, append, apply, reload (D2, D7).

Pure: it knows no transactions, no groups, no sockets and no time. `machine` says what a
coordinator's logic looks like, `shard` runs one for one partition of an internal topic, `replay`
says what of the log a shard has to apply when it loads.
"""

from oncelog.coordinator.machine import (
    NOTHING,
    AppendProducer,
    ApplyContext,
    Decision,
    Entry,
    Machine,
    Reply,
    Token,
    UnknownKind,
)
from oncelog.coordinator.replay import EndOfTransaction, RecordToApply, Replay
from oncelog.coordinator.shard import Append, Output, Shard, ShardState

__all__ = [
    "NOTHING",
    "Append",
    "AppendProducer",
    "ApplyContext",
    "Decision",
    "EndOfTransaction",
    "Entry",
    "Machine",
    "Output",
    "RecordToApply",
    "Replay",
    "Reply",
    "Shard",
    "ShardState",
    "Token",
    "UnknownKind",
]
