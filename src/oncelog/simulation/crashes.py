"""Defines the crash table: the steps of a transaction or a log at which a process can die.

A broker's watch (`oncelog.simulation.watch`) reports the rows of a broker's death, and the workload
that models a Spark micro-batch those of its driver; both give a `CrashContext`. The rows of clients
are read from the history alone. Sources: Kafka's fail-over rules (KIP-98, KIP-890) and the crash
table of the micro-batch in `oncelog.spark.progress`. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from oncelog.simulation.history import (
    BrokerDied,
    BrokerStarted,
    Event,
    Fault,
    History,
    TransactionBegan,
    TransactionEnded,
    TransactionEnding,
    TransactionOffsets,
    TransactionUnknown,
)

__all__ = [
    "CLEAN_ENDS",
    "CLIENT_DEATHS",
    "SPARK_STEPS",
    "CrashContext",
    "CrashPlace",
    "belongs_to",
    "crash_rows",
    "spark_crash",
]


class CrashPlace(Enum):
    """The step at which a process died.

    The value is printed in tables; comments say what detects it.
    """

    # The watch: the state of a transactional id on the broker that died.
    ONGOING = "broker dies with a transaction open, before PREPARE"
    BEGIN_UNANSWERED = "broker dies between the append of ONGOING and its reply"
    PREPARE_WRITE = "broker dies inside the write of PREPARE"
    PREPARE_UNANSWERED = "broker dies between the append of PREPARE and its reply"
    PREPARED = "broker dies between PREPARE and the first marker"
    MARKER_WRITE = "broker dies inside the write of a marker"
    SOME_MARKERS = "broker dies between two markers"
    ALL_MARKERS = "broker dies between the last marker and COMPLETE"
    COMPLETE_WRITE = "broker dies inside the write of COMPLETE"
    COMPLETE_UNANSWERED = "broker dies between the append of COMPLETE and its reply"
    OFFSETS_WRITE = "broker dies inside a write to __consumer_offsets"
    # The watch: the state of the log directory.
    UNSYNCED_APPEND = "power is lost between an append and its fsync"
    IN_FSYNC = "broker dies inside an fsync"
    ROLL_BEFORE_SEGMENT = "broker dies between sealing a segment and creating the next"
    ROLL_UNFLUSHED = "power is lost between a roll and the flush of the sealed segment"
    WRITE_ATOMIC = "broker dies inside write_atomic, between the temp file and its rename"
    TOPIC_CREATION = "broker dies between a partition's folder and its partition.metadata"
    DELETION_METADATA = "broker dies between a topic's removal from the metadata and its folder's"
    DELETION_FOLDER = "broker dies between the rename of a deleted folder and its removal"
    # The watch: the broker's phase.
    RECOVERING = "broker dies while it recovers its logs"
    LOADING = "broker dies while it loads its coordinators"
    STOPPING = "broker dies during a clean stop"
    # The history.
    END_TXN_IN_FLIGHT = "broker dies between a client's EndTxn and its answer"
    OFFSETS_IN_TRANSACTION = "broker dies between a client's TxnOffsetCommit and its EndTxn"
    CLIENT_IN_TRANSACTION = "client dies in a transaction, before TxnOffsetCommit and EndTxn"
    CLIENT_AFTER_OFFSETS = "client dies between TxnOffsetCommit and EndTxn"
    CLIENT_ENDING = "client dies between EndTxn and its answer"
    # The model of the Spark micro-batch, by `spark_crash`.
    SPARK_WAL_WRITTEN = "driver dies between the offsets log and InitProducerId"
    SPARK_AFTER_INIT = "driver dies between InitProducerId and the first write"
    SPARK_MID_TASK = "driver dies inside the write stage"
    SPARK_TASKS_DONE = "driver dies between the tasks and TxnOffsetCommit"
    SPARK_OFFSETS_COMMITTED = "driver dies between TxnOffsetCommit and EndTxn of a micro-batch"
    SPARK_ENDING = "driver dies between EndTxn and its answer"
    SPARK_TXN_ENDED = "driver dies between EndTxn and Spark's commit log"
    # Of a cluster.
    COORDINATOR_MOVES = "the coordinator moves between PREPARE and the first marker"
    ZOMBIE_COORDINATOR = "a coordinator that was replaced sends markers of its old epoch"
    LEADER_DIES = "a partition's leader dies between two markers while the coordinator lives"
    UNREPLICATED = "a leader dies between an append and its replication"


SPARK_STEPS: dict[str, CrashPlace] = {
    "wal_written": CrashPlace.SPARK_WAL_WRITTEN,
    "after_init": CrashPlace.SPARK_AFTER_INIT,
    "mid_task": CrashPlace.SPARK_MID_TASK,
    "tasks_done": CrashPlace.SPARK_TASKS_DONE,
    "offsets_committed": CrashPlace.SPARK_OFFSETS_COMMITTED,
    "ending": CrashPlace.SPARK_ENDING,
    "txn_ended": CrashPlace.SPARK_TXN_ENDED,
    "drain": CrashPlace.SPARK_TXN_ENDED,
    "drained": CrashPlace.SPARK_TXN_ENDED,
}
"""By the last step in the driver's progress."""

CLIENT_DEATHS = frozenset(
    {"kill", "kill-client", "kill-client-at-event", "kill-at-await", "kill-at-operation"}
)
"""Faults that end the process they name."""


CLEAN_ENDS = frozenset({"stop", "the end"})
"""Causes of an end that is no death: a requested stop, or the end of the run."""


@dataclass(frozen=True, slots=True)
class CrashContext:
    """A death as the process's watch saw it; `rows` are all its crash rows."""

    at_s: float
    who: str
    cause: str
    rows: tuple[CrashPlace, ...]


def spark_crash(at_s: float, who: str, last_step: str, cause: str = "kill") -> CrashContext:
    """The context of a driver that died after `last_step`; "" is between two batches."""
    row = SPARK_STEPS.get(last_step)
    return CrashContext(at_s, who, cause, () if row is None else (row,))


def belongs_to(who: str, target: str) -> bool:
    """Return whether a client is the fault's target, its process ("c1.0") or a part ("c1.0.2")."""
    return who == target or who.startswith(f"{target}.")


def crash_rows(history: History, contexts: Iterable[CrashContext] = ()) -> Iterator[CrashPlace]:
    """Return the crash rows of each death of the run."""
    for context in contexts:
        if context.cause not in CLEAN_ENDS:
            yield from context.rows
    open_: dict[str, CrashPlace] = {}
    down: set[str] = set()
    for event in history.events:
        if isinstance(event, BrokerDied):
            # A broker that dies again before it serves has no requests.
            if event.cause not in CLEAN_ENDS and event.who not in down:
                yield from _met_by_a_broker(open_)
            down.add(event.who)
        elif isinstance(event, BrokerStarted):
            down.discard(event.who)
        elif isinstance(event, Fault):
            if event.kind in CLIENT_DEATHS:
                died = [who for who in open_ if belongs_to(who, event.target)]
                yield from {open_.pop(who): None for who in died}
        else:
            _follow(event, open_)


def _met_by_a_broker(open_: dict[str, CrashPlace]) -> Iterator[CrashPlace]:
    """Return the crash rows of the clients' steps when their broker died; each row once."""
    doing = set(open_.values())
    if CrashPlace.CLIENT_ENDING in doing:
        yield CrashPlace.END_TXN_IN_FLIGHT
    if CrashPlace.CLIENT_AFTER_OFFSETS in doing:
        yield CrashPlace.OFFSETS_IN_TRANSACTION


def _follow(event: Event, open_: dict[str, CrashPlace]) -> None:
    """Update the row in which a death of each client would be counted now."""
    if isinstance(event, TransactionBegan):
        open_[event.who] = CrashPlace.CLIENT_IN_TRANSACTION
    elif isinstance(event, TransactionOffsets):
        open_[event.who] = CrashPlace.CLIENT_AFTER_OFFSETS
    elif isinstance(event, TransactionEnding):
        open_[event.who] = CrashPlace.CLIENT_ENDING
    elif isinstance(event, TransactionEnded | TransactionUnknown):
        open_.pop(event.who, None)
