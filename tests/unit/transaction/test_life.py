"""What a coordinator remembers of an id, and says to those who ask."""

import tracemalloc
from dataclasses import replace

import pytest

from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.core.limits import (
    LIFE_PARTITIONS_PER_STEP_COUNT_MAX,
    LIFE_STEPS_PER_ID_COUNT_MAX,
    LIVES_REMEMBERED_COUNT_MAX,
)
from oncelog.transaction import records
from oncelog.transaction.events import InitProducerId, OutsideMarkers
from oncelog.transaction.life import Lives, Step, StepKind
from oncelog.transaction.states import TransactionState
from tests.unit.transaction.context import ID, OFFSETS, P0, P1, Context

S = TransactionState
K = StepKind
LIFE_BYTES_MAX = 15_000
"""docs/transactions.md: the memory of one id's life."""


def told(context: Context) -> list[tuple[StepKind, tuple[object, ...], str]]:
    return [(step.kind, step.partitions, step.cause) for step in context.describe().life]


@pytest.mark.parametrize("version", [1, 2])
def test_a_transaction_is_told_step_by_step(version: int) -> None:
    context = Context(version=version)
    context.init()
    context.now_ms += 10
    context.add(P0)
    context.now_ms += 10
    context.add(P1, OFFSETS)
    context.now_ms += 10
    context.end(True)
    context.now_ms += 10
    (effect,) = context.markers
    context.answer(effect, partitions=(P0,))
    context.answer(effect, partitions=(P1, OFFSETS))
    every = (OFFSETS, P0, P1)
    assert told(context) == [
        (K.PRODUCER, (), ""),
        (K.PARTITIONS, (P0,), ""),
        (K.PARTITIONS, (P1,), ""),
        (K.OFFSETS, (OFFSETS,), ""),
        (K.PREPARE_COMMIT, every, ""),
        (K.MARKER, (P0,), ""),
        (K.MARKER, (OFFSETS, P1), ""),
        (K.COMPLETE_COMMIT, (), ""),
    ]
    steps = context.describe().life
    assert [step.at_ms - steps[0].at_ms for step in steps] == [0, 10, 20, 20, 30, 40, 40, 40]
    bumped = steps[0].producer_epoch + (version - 1)
    assert {step.producer_epoch for step in steps[4:]} == {bumped}


def test_the_next_transaction_names_all_its_partitions_again() -> None:
    context = Context()
    context.go_to(S.COMPLETE_COMMIT)
    context.add(P0)
    assert told(context)[-1] == (K.PARTITIONS, (P0,), "")


def test_an_abort_by_timeout_says_so() -> None:
    context = Context()
    context.go_to(S.ONGOING)
    context.tick(70_000)
    context.answer_markers()
    prepared = [step for step in context.describe().life if step.kind is K.PREPARE_ABORT]
    assert [step.cause for step in prepared] == ["transaction timeout of 60000 ms"]


@pytest.mark.parametrize("version", [1, 2])
def test_an_abort_that_the_client_asked_for_says_so_and_fences_nobody(version: int) -> None:
    context = Context(version=version)
    context.go_to(S.ONGOING)
    context.end(False)
    context.answer_markers()
    causes = {step.kind: step.cause for step in context.describe().life}
    assert causes[K.PREPARE_ABORT] == "EndTxn of its producer"
    assert causes[K.COMPLETE_ABORT] == ""
    assert context.describe().cause is None
    context.add(P0)
    context.end(True)
    context.answer_markers()
    assert context.describe().life[-1].cause == ""


def test_an_administrators_takeover_says_so() -> None:
    context = Context()
    context.go_to(S.ONGOING)
    context.send(InitProducerId(ID, 60_000, client="client 'x'", is_administrator=True))
    context.answer_markers()
    causes = [cause for _, _, cause in told(context) if cause]
    assert causes == ["an administrator's command, client 'x'"] * 2
    assert context.notices[-1].text.endswith("cause: an administrator's command, client 'x'")


def test_a_marker_past_the_coordinator_is_told_once_and_hides_none_of_its_own() -> None:
    context = Context()
    context.go_to(S.PREPARE_COMMIT)
    producer_id = int(context.metadata.producer_id)
    for number in (producer_id, producer_id, producer_id + 1):
        outcome = (((P0, ErrorCode.none),), "abort past the coordinator, client 'x'")
        event = OutsideMarkers({number: outcome})
        context.run(context.processor.submit(event, None, context.now_ms))
    (effect,) = context.markers
    context.answer(effect, partitions=(P0,))
    context.answer(effect, partitions=(P1,))
    marked = [step for step in context.describe().life if step.kind is K.MARKER]
    assert [(step.partitions, step.cause) for step in marked] == [
        ((P0,), "abort past the coordinator, client 'x'"),
        ((P0,), ""),
        ((P1,), ""),
    ]
    assert context.state is S.COMPLETE_COMMIT


def test_a_marker_past_the_coordinator_is_told_of_whichever_id_it_ends() -> None:
    context = Context()
    context.init(id_="first")
    producer_id = int(context.init(id_="second").producer_id)
    outcome = (((P0, ErrorCode.none),), "abort past the coordinator, client 'x'")
    event = OutsideMarkers({producer_id: outcome})
    context.run(context.processor.submit(event, None, context.now_ms))
    kinds = {id_: [step.kind for step in context.describe(id_).life] for id_ in ("first", "second")}
    assert K.MARKER not in kinds["first"]
    assert K.MARKER in kinds["second"]


def test_a_takeover_says_who_came() -> None:
    context = Context()
    context.go_to(S.ONGOING)
    context.start_init()
    context.answer_markers()
    causes = [cause for _, _, cause in told(context) if cause]
    assert causes == ["InitProducerId of another producer"] * 2


def test_a_move_that_was_not_committed_is_not_told() -> None:
    context = Context()
    context.go_to(S.ONGOING)
    before = told(context)
    context.holds = True
    context.start_init()
    context.fail_held(ErrorCode.not_enough_replicas)
    context.holds = False
    assert told(context) == before
    assert context.describe().cause is None
    assert context.notices == []


def test_a_refused_marker_and_a_deleted_topic_are_told() -> None:
    context = Context()
    context.go_to(S.PREPARE_COMMIT)
    (effect,) = context.markers
    context.answer(effect, ErrorCode.invalid_producer_epoch, partitions=(P0,), is_closed=True)
    context.answer(effect, deleted=(P1,), partitions=(P1,))
    refused, deleted, _ = context.describe().life[-3:]
    assert (refused.partitions, refused.error) == ((P0,), ErrorCode.invalid_producer_epoch)
    assert refused.cause == "nothing is open there: nothing to end"
    assert deleted.cause == "the topic is deleted: nothing to end there"
    assert context.state is S.COMPLETE_COMMIT


def test_after_a_fail_over_the_life_begins_with_what_the_log_has() -> None:
    context = Context()
    context.go_to(S.PREPARE_COMMIT)
    context.fail_over()
    assert [kind for kind, _, _ in told(context)][-1] is K.PREPARE_COMMIT
    assert "commit markers are sent again after a load; partitions: t-0, t-1" in (
        context.notices[-1].text
    )


def test_a_life_is_bounded_in_steps_and_in_ids() -> None:
    context = Context()
    context.init()
    for _ in range(LIFE_STEPS_PER_ID_COUNT_MAX):
        context.add(P0)
        context.end(True)
        context.answer_markers()
    assert len(context.describe().life) <= LIFE_STEPS_PER_ID_COUNT_MAX
    lives = Lives()
    for number in range(LIVES_REMEMBERED_COUNT_MAX + 1):
        lives.begin(f"id-{number}").append(replace(context.metadata, transactional_id="x"))
    assert lives.steps("id-0") == ()
    assert isinstance(lives.steps("id-1")[0], Step)


def test_a_step_of_many_partitions_names_a_few_and_counts_the_others() -> None:
    many = tuple(TopicPartition("wide", index) for index in range(100))
    few = many[:LIFE_PARTITIONS_PER_STEP_COUNT_MAX]
    context = Context()
    context.init()
    context.add(*few)
    context.add(*many)
    context.add(*many, OFFSETS)
    context.end(True)
    (effect,) = context.markers
    context.answer(effect, partitions=(P0,), deleted=many[60:])
    retried = many[:60]
    for _ in range(2):  # The second report says nothing new.
        context.answer(effect, ErrorCode.not_leader_or_follower, partitions=retried)
    context.answer(effect, partitions=(*many[:60], OFFSETS))
    steps = context.describe().life[1:]
    failed = ErrorCode.not_leader_or_follower.name
    assert [(s.kind, s.partitions, s.more_count, s.error.name) for s in steps] == [
        (K.PARTITIONS, few, 0, "none"),
        (K.PARTITIONS, many[8:16], 84, "none"),
        (K.OFFSETS, (OFFSETS,), 0, "none"),
        (K.PREPARE_COMMIT, (OFFSETS, *many[:7]), 93, "none"),
        (K.MARKER, (P0,), 0, "none"),
        (K.MARKER, many[60:68], 32, "unknown_topic_or_partition"),
        (K.MARKER, few, 52, failed),
        (K.MARKER, (OFFSETS, *many[:7]), 53, "none"),
        (K.COMPLETE_COMMIT, (), 0, "none"),
    ]


@pytest.mark.parametrize("per_error", [1, LIFE_PARTITIONS_PER_STEP_COUNT_MAX + 1])
def test_a_report_with_several_outcomes_is_told_as_one_step_each(per_error: int) -> None:
    context = Context()
    context.init()
    many = tuple(TopicPartition("wide", index) for index in range(2 * per_error))
    context.add(*many)
    context.end(True)
    (effect,) = context.markers
    errors = [ErrorCode.not_leader_or_follower, ErrorCode.not_enough_replicas]
    outcomes = tuple((one, errors[index // per_error]) for index, one in enumerate(many))
    context.report(effect, outcomes)
    steps = context.describe().life[-2:]
    few = min(per_error, LIFE_PARTITIONS_PER_STEP_COUNT_MAX)
    assert [(s.partitions, s.more_count, s.error) for s in steps] == [
        (many[:few], per_error - few, errors[0]),
        (many[per_error : per_error + few], per_error - few, errors[1]),
    ]


def test_partitions_of_either_kind_without_a_name_are_counted_once() -> None:
    context = Context()
    context.init()
    context.add(OFFSETS, *(TopicPartition("wide", index) for index in range(9)))
    (step,) = context.describe().life[1:]
    assert (step.kind, step.more_count) == (K.PARTITIONS, 2)
    assert step.partitions[-1] == OFFSETS
    assert len(step.partitions) == LIFE_PARTITIONS_PER_STEP_COUNT_MAX


@pytest.mark.parametrize(("count", "per_request"), [(1, 1), (8, 8), (8, 2), (200, 9), (1000, 1000)])
def test_a_life_takes_no_more_memory_than_is_documented(count: int, per_request: int) -> None:
    """docs/transactions.md: transactions of few partitions or many, added at once or bit by bit."""
    context = Context()
    tracemalloc.start()
    try:
        context.init()
        for number in range(LIFE_STEPS_PER_ID_COUNT_MAX // 2):
            topic = f"topic-{number:014}"
            for first in range(0, count, per_request):
                context.add(*(TopicPartition(topic, first + n) for n in range(per_request)))
            context.end(True)
            context.answer_markers()
        # What others have of the transactions beside the life is not measured.
        context.log.clear()
        context.results.clear()
        context.init()
        for cached in vars(records).values():
            getattr(cached, "cache_clear", int)()
        full_bytes = tracemalloc.get_traced_memory()[0]
        context.shard._store.lives.by_id.clear()
        life_bytes = full_bytes - tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert life_bytes < LIFE_BYTES_MAX


def test_only_who_asks_is_told() -> None:
    from oncelog.transaction.events import DescribeTransaction

    context = Context()
    context.init()
    assert context.results[context.send(DescribeTransaction(ID))].life == ()
