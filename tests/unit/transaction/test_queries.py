"""DescribeTransactions and ListTransactions."""

from dataclasses import replace

import pytest

from oncelog.core.errors import ErrorCode
from oncelog.core.ids import ProducerEpoch, ProducerId
from oncelog.transaction.events import (
    AddPartitions,
    DescribeTransactionReply,
    ListedTransaction,
    ListTransactions,
    ListTransactionsReply,
)
from oncelog.transaction.states import TransactionState
from oncelog.transaction.store import TransactionConfig
from tests.unit.transaction.context import FIRST_PRODUCER_ID, ID, P0, P1, Context

S = TransactionState
E = ErrorCode


def test_describe_says_what_is_committed_and_not_what_is_pending() -> None:
    context = Context()
    context.go_to(S.ONGOING)
    context.holds = True
    context.start_end(True)
    assert replace(context.describe(), life=()) == DescribeTransactionReply(
        error=E.none,
        transactional_id=ID,
        state=S.ONGOING,
        timeout_ms=60_000,
        start_timestamp_ms=context.now_ms,
        last_update_timestamp_ms=context.now_ms,
        producer_id=FIRST_PRODUCER_ID,
        producer_epoch=ProducerEpoch(0),
        partitions=(P0, P1),
    )


def test_describe_of_nothing() -> None:
    context = Context()
    assert context.describe("").error is E.invalid_request
    assert context.describe("nobody").error is E.transactional_id_not_found


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (ListTransactions(), ["a", "b", "open"]),
        (ListTransactions(producer_ids=frozenset({FIRST_PRODUCER_ID + 1})), ["b"]),
        (ListTransactions(states=frozenset({"Ongoing"})), ["open"]),
        (ListTransactions(states=frozenset({"Empty", "PrepareCommit"})), ["a", "b"]),
        (ListTransactions(duration_ms=100, states=frozenset({"Ongoing"})), []),
        (ListTransactions(duration_ms=99, states=frozenset({"Ongoing"})), ["open"]),
        (ListTransactions(pattern="[ab]"), ["a", "b"]),
        (ListTransactions(pattern="ope"), []),
        (ListTransactions(pattern="(?i)OPEN|^a$"), ["a", "open"]),
        (ListTransactions(pattern=r"\A(?P<all>[[:alpha:]]\b)\z"), ["a", "b"]),
    ],
)
def test_list_filters(filters: ListTransactions, expected: list[str]) -> None:
    context = Context()
    context.init(id_="a")
    context.init(id_="b")
    context.init(id_="open")
    context.run(
        context.processor.submit(
            AddPartitions("open", ProducerId(FIRST_PRODUCER_ID + 2), ProducerEpoch(0), (P0,)),
            None,
            context.now_ms,
        )
    )
    context.now_ms += 100
    result = context.results[context.send(filters)]
    assert isinstance(result, ListTransactionsReply)
    assert [line.transactional_id for line in result.transactions] == expected


def test_list_names_the_states_that_it_does_not_know() -> None:
    context = Context()
    context.init()
    token = context.send(ListTransactions(states=frozenset({"Empty", "Happy"})))
    expires_ms = context.now_ms + TransactionConfig().id_expiration_ms
    line = ListedTransaction(ID, context.metadata.producer_id, S.EMPTY, expires_ms)
    assert context.results[token] == ListTransactionsReply(E.none, (line,), ("Happy",))


def test_list_refuses_what_is_no_pattern() -> None:
    context = Context()
    token = context.send(ListTransactions(pattern="("))
    assert context.results[token] == ListTransactionsReply(E.invalid_regular_expression)
