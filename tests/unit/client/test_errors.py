"""The table of codes: what a caller can do about each."""

import pytest

from oncelog.client.errors import (
    AbortableError,
    ClientError,
    FatalError,
    FencedError,
    OffsetOutOfRangeError,
    Operation,
    RetriableError,
    classify,
)
from oncelog.core.errors import ErrorCode

TABLE = [
    ("invalid_producer_epoch", Operation.TRANSACTIONAL_PRODUCE, AbortableError),
    ("invalid_producer_epoch", Operation.TRANSACTION, FencedError),
    ("invalid_producer_epoch", Operation.PRODUCE, FencedError),
    ("producer_fenced", Operation.TRANSACTIONAL_PRODUCE, FencedError),
    ("producer_fenced", Operation.TRANSACTION, FencedError),
    ("out_of_order_sequence_number", Operation.TRANSACTIONAL_PRODUCE, AbortableError),
    ("out_of_order_sequence_number", Operation.PRODUCE, FatalError),
    ("invalid_txn_state", Operation.TRANSACTIONAL_PRODUCE, AbortableError),
    ("invalid_txn_state", Operation.TRANSACTION, FatalError),
    ("invalid_producer_id_mapping", Operation.TRANSACTIONAL_PRODUCE, FatalError),
    ("invalid_producer_id_mapping", Operation.TRANSACTION, FatalError),
    ("transaction_abortable", Operation.TRANSACTIONAL_PRODUCE, AbortableError),
    ("transaction_abortable", Operation.TRANSACTION, AbortableError),
    ("unknown_producer_id", Operation.TRANSACTION, AbortableError),
    ("illegal_generation", Operation.TRANSACTION, AbortableError),
    ("concurrent_transactions", Operation.TRANSACTION, RetriableError),
    ("unstable_offset_commit", Operation.TRANSACTION, RetriableError),
    ("not_leader_or_follower", Operation.PRODUCE, RetriableError),
    ("message_too_large", Operation.PRODUCE, FatalError),
    ("topic_already_exists", Operation.OTHER, FatalError),
    ("offset_out_of_range", Operation.OTHER, OffsetOutOfRangeError),
]


@pytest.mark.parametrize(("name", "operation", "kind"), TABLE)
def test_a_code_means_what_the_table_says(
    name: str, operation: Operation, kind: type[ClientError]
) -> None:
    error = classify(ErrorCode[name], operation, "why")
    assert type(error) is kind
    assert error.code is ErrorCode[name]
    assert str(error) == f"{name.upper()}: why"


def test_no_code_is_both_fatal_and_retriable() -> None:
    for code in ErrorCode:
        for operation in Operation:
            error = classify(code, operation)
            decided_otherwise = {
                (ErrorCode.corrupt_message, Operation.FETCH): False,
                (ErrorCode.unknown_server_error, Operation.FETCH): True,
            }
            expected = decided_otherwise.get((code, operation), bool(code.retriable))
            assert isinstance(error, RetriableError) is expected
