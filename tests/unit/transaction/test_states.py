"""The table of legal moves."""

from itertools import product

import pytest

from oncelog.core.errors import InvariantViolation
from oncelog.core.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerEpoch, ProducerId
from oncelog.transaction.states import LEGAL_PREVIOUS, TransactionMetadata, TransactionState, moved

S = TransactionState

LEGAL = """
    Empty               < Empty CompleteCommit CompleteAbort
    Ongoing             < Ongoing Empty CompleteCommit CompleteAbort
    PrepareCommit       < Ongoing
    PrepareAbort        < Ongoing PrepareEpochFence Empty CompleteCommit CompleteAbort
    CompleteCommit      < PrepareCommit
    CompleteAbort       < PrepareAbort
    Dead                < Empty CompleteCommit CompleteAbort
    PrepareEpochFence   < Ongoing
"""


def metadata(state: TransactionState) -> TransactionMetadata:
    return TransactionMetadata(
        "a", ProducerId(1), ProducerEpoch(0), 10, state, last_update_timestamp_ms=100
    )


def test_the_table_is_kafkas() -> None:
    table = {}
    for line in LEGAL.strip().splitlines():
        state, previous = line.split("<")
        table[state.strip()] = set(previous.split())
    assert table == {
        state.label: {previous.label for previous in LEGAL_PREVIOUS[state]} for state in S
    }


@pytest.mark.parametrize(("before", "after"), list(product(S, S)))
def test_a_move_outside_the_table_is_a_bug_of_ours(
    before: TransactionState, after: TransactionState
) -> None:
    if before in LEGAL_PREVIOUS[after]:
        assert moved(metadata(before), after, 200).state is after
    else:
        with pytest.raises(InvariantViolation, match="INV-4"):
            moved(metadata(before), after, 200)


def test_a_move_needs_a_producer_id_and_an_epoch() -> None:
    with pytest.raises(InvariantViolation, match="INV-11"):
        moved(metadata(S.EMPTY), S.EMPTY, 200, producer_id=NO_PRODUCER_ID)
    with pytest.raises(InvariantViolation, match="INV-11"):
        moved(metadata(S.EMPTY), S.EMPTY, 200, producer_epoch=NO_PRODUCER_EPOCH)


def test_the_last_update_never_moves_back() -> None:
    assert moved(metadata(S.EMPTY), S.EMPTY, 50).last_update_timestamp_ms == 100


def test_a_move_notes_the_producer_id_before_it() -> None:
    after = moved(metadata(S.EMPTY), S.EMPTY, 200, producer_id=ProducerId(9))
    assert (after.previous_producer_id, after.producer_id) == (1, 9)


def test_ids_and_names_are_kafkas() -> None:
    assert [(state.value, state.label) for state in S] == [
        (0, "Empty"),
        (1, "Ongoing"),
        (2, "PrepareCommit"),
        (3, "PrepareAbort"),
        (4, "CompleteCommit"),
        (5, "CompleteAbort"),
        (6, "Dead"),
        (7, "PrepareEpochFence"),
    ]
