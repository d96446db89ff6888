"""The tables of the transaction coordinator, as cells: a request, the state that it meets, whose
producer id and epoch it bears, and what comes of it at once.

`cell_of` names the cell of a request; `TABLE` says the outcome of each cell. The scenarios have to
reach every cell, with that outcome (`test_transaction_scenarios`). Sources: Kafka's
TransactionCoordinator (KIP-98, KIP-360, KIP-588, KIP-890), and docs/differences.md where a request
waits that Kafka bounces (D7).
"""

from __future__ import annotations

from itertools import product
from typing import Final

from oncelog.core.ids import TopicPartition
from oncelog.transaction.events import AddPartitions, EndTxn, InitProducerId
from oncelog.transaction.states import LEGAL_PREVIOUS, TransactionMetadata, TransactionState

__all__ = ["BUGS", "ERRORS", "MOVES", "TABLE", "WAITS", "cell_of"]

S = TransactionState
WAITS: Final = "waits"
_MAPPING: Final = "INVALID_PRODUCER_ID_MAPPING"
_FENCED: Final = "PRODUCER_FENCED"
_INVALID: Final = "INVALID_TXN_STATE"
_STATES: Final = (
    S.EMPTY,
    S.ONGOING,
    S.PREPARE_COMMIT,
    S.PREPARE_ABORT,
    S.COMPLETE_COMMIT,
    S.COMPLETE_ABORT,
)
_COMMITTED: Final = frozenset({S.PREPARE_COMMIT, S.COMPLETE_COMMIT})


def cell_of(
    event: InitProducerId | AddPartitions | EndTxn, metadata: TransactionMetadata | None
) -> str:
    """Name the cell that a request falls into."""
    if not event.transactional_id:
        return f"{_name_of(event)}: no id"
    if metadata is None:
        return f"{_name_of(event)}: unknown id"
    if isinstance(event, InitProducerId) and event.producer_id < 0:
        relation = "starts"
    else:
        relation = _relation(int(event.producer_id), int(event.producer_epoch), metadata)
    presence = ""
    if isinstance(event, AddPartitions) and event.verify_only:
        presence = ", present" if _is_present(event.partitions, metadata) else ", absent"
    return f"{_name_of(event)}: {metadata.state.label}, {relation}{presence}"


def _name_of(event: InitProducerId | AddPartitions | EndTxn) -> str:
    match event:
        case EndTxn():
            end = "commit" if event.commit else "abort"
            return f"TV{event.transaction_version} {end}"
        case AddPartitions(verify_only=True):
            return "verify"
        case AddPartitions():
            return f"TV{event.transaction_version} add"
    return "init"


def _relation(producer_id: int, epoch: int, metadata: TransactionMetadata) -> str:
    """Whose ids a request bears: "last" is the epoch before the one that stands."""
    if producer_id != metadata.producer_id:
        return "other id"
    names = {0: "current", 1: "last"}
    return names.get(metadata.producer_epoch - epoch, "old")


def _is_present(partitions: tuple[TopicPartition, ...], metadata: TransactionMetadata) -> bool:
    return metadata.partitions.issuperset(partitions)


def _tv2_end(state: TransactionState, commit: bool, relation: str) -> str:
    """KIP-890's table. A state here was reached under TV2."""
    if relation == "other id":
        return _MAPPING
    is_same = (state in _COMMITTED) == commit
    if state.is_prepared:
        prepared = {"current": WAITS, "last": WAITS if is_same else _INVALID}
        return prepared.get(relation, _FENCED)
    if relation == "current":
        return "NONE" if state is S.ONGOING or not commit else _INVALID
    if relation == "last" and state.is_complete:
        return "NONE" if is_same else _INVALID
    return _FENCED


def _tv1_end(state: TransactionState, commit: bool, relation: str) -> str:
    if relation != "current":
        return _MAPPING if relation == "other id" else _FENCED
    if state is S.ONGOING:
        return "NONE"
    if state is S.EMPTY or (state in _COMMITTED) != commit:
        return _INVALID
    return WAITS if state.is_prepared else "NONE"


def _init(state: TransactionState, relation: str) -> str:
    if relation in ("old", "other id"):
        return _FENCED
    return "NONE" if state.is_at_rest else WAITS


def _add(state: TransactionState, relation: str) -> str:
    """While a transaction ends an add waits, whatever its epoch (KAFKA-18660)."""
    if state.is_prepared:
        return WAITS
    return {"current": "NONE", "other id": _MAPPING}.get(relation, _FENCED)


def _verify(state: TransactionState, relation: str, presence: str) -> str:
    if relation != "current":
        return _MAPPING if relation == "other id" else _FENCED
    if state.is_prepared:
        return "CONCURRENT_TRANSACTIONS"
    return "NONE" if presence == "present" else "TRANSACTION_ABORTABLE"


def _table() -> dict[str, str]:
    table = {f"{name}: no id": "INVALID_REQUEST" for name in ("init", "verify")}
    table["init: unknown id"] = "NONE"
    table["verify: unknown id"] = _MAPPING
    for version, verb in product((1, 2), ("commit", "abort", "add")):
        table[f"TV{version} {verb}: no id"] = "INVALID_REQUEST"
        table[f"TV{version} {verb}: unknown id"] = _MAPPING
    for state, relation in product(_STATES, ("current", "last", "old", "other id")):
        where = f"{state.label}, {relation}"
        for commit in (True, False):
            end = "commit" if commit else "abort"
            table[f"TV1 {end}: {where}"] = _tv1_end(state, commit, relation)
            table[f"TV2 {end}: {where}"] = _tv2_end(state, commit, relation)
        for version in (1, 2):
            table[f"TV{version} add: {where}"] = _add(state, relation)
        if relation != "last":
            table[f"init: {where}"] = _init(state, relation)
        for presence in ("present", "absent"):
            has_partitions = state is S.ONGOING or state.is_prepared
            if presence == "absent" or has_partitions:
                table[f"verify: {where}, {presence}"] = _verify(state, relation, presence)
    for state in _STATES:
        table[f"init: {state.label}, starts"] = _init(state, "starts")
    return table


TABLE: Final = _table()
"""Cell -> what is answered at once, or that the request waits.

KIP-360 with the last epoch has no cell: what it brings depends on whether this leadership knows
that epoch (kip_360.txt).
"""

MOVES: Final = frozenset(
    (before.label, after.label)
    for after, all_before in LEGAL_PREVIOUS.items()
    for before in all_before
)
"""Every legal move."""

ERRORS: Final = frozenset(
    {
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE",
        "CONCURRENT_TRANSACTIONS",
        "INVALID_PRODUCER_ID_MAPPING",
        "INVALID_REQUEST",
        "INVALID_TRANSACTION_TIMEOUT",
        "INVALID_TXN_STATE",
        "NONE",
        "NOT_COORDINATOR",
        "PRODUCER_FENCED",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "TRANSACTIONAL_ID_NOT_FOUND",
        "TRANSACTION_ABORTABLE",
        "UNKNOWN_SERVER_ERROR",
        "UNSUPPORTED_VERSION",
    }
)
"""Everything that the coordinator may answer to a client."""

BUGS: Final = {
    "KAFKA-18019": "tests/scenarios/transaction/expired_id.txt",
    "KAFKA-18202": "tests/scenarios/wire/first_sequence.txt",
    "KAFKA-18660": "tests/scenarios/transaction/epochs_used_up.txt",
    "KAFKA-19367": "tests/scenarios/transaction/failed_fence.txt",
    "KAFKA-19446": "tests/scenarios/wire/late_marker.txt",
    "KAFKA-19690": "tests/scenarios/wire/fenced_producer.txt",
    "KAFKA-19999": "tests/scenarios/wire/late_marker.txt",
    "KAFKA-20090": "tests/scenarios/transaction/epochs_end_by_timeout.txt",
    "KAFKA-20310": "tests/scenarios/transaction/epochs_used_up.txt",
}
"""Upstream's bugs that this protocol met, and the scenario that names each."""
