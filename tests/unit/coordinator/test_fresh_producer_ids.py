"""A decision that needs a producer id is decided again with one, which no other gets (INV-11)."""

from collections.abc import Sequence
from typing import TypeAlias

from oncelog.coordinator import (
    CoordinatorRecord,
    CoordinatorShard,
    Decision,
    EventContext,
    RecordContext,
    Step,
    replies_to,
    reply_at_once,
)
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import Offset, ProducerId
from tests.unit.coordinator.support import AnyOutput, AnyProcessor, processor_of

FRESH = ProducerId(7)
Said: TypeAlias = tuple[str, ProducerId | None] | ErrorCode


class Asking(CoordinatorShard[str, Said, str]):
    """Events that begin with "new" write a record with a fresh producer id."""

    def id_of(self, event: str) -> str:
        return "id"

    def decide(self, event: str, context: EventContext) -> Decision[str, Said, str]:
        fresh = context.fresh_producer_id
        if event.startswith("new") and fresh is None:
            return Decision(id="id", wait=True, needs_producer_id=True)
        records = (CoordinatorRecord(event.encode(), b""),) if event.startswith("new") else ()
        return Decision(records, replies_to(context.token, (event, fresh)), id="id")

    def replay(self, step: Step, context: RecordContext) -> None:
        return

    def failed(
        self, event: str, error: ErrorCode, context: EventContext
    ) -> Decision[str, Said, str]:
        return reply_at_once(context, error)


def asked(*events: str) -> tuple[AnyProcessor, AnyOutput]:
    """A processor that was asked these, and what the first of them has it do."""
    processor = processor_of(Asking())
    processor.activate(0)
    first, *rest = (processor.submit(event, f"request {event}", 0) for event in events)
    assert rest == [first._replace(appends=[])] * len(rest), "the others wait for the first"
    return processor, first


def said(outputs: Sequence[AnyOutput]) -> list[Said]:
    replies = [reply for output in outputs for reply in output.replies]
    for reply in replies:
        assert isinstance(reply.value, ErrorCode) or reply.token == f"request {reply.value[0]}"
    return [reply.value for reply in replies]


def test_inv11_only_the_decision_that_needs_a_producer_id_gets_it() -> None:
    processor, first = asked("new", "old", "new again")
    (needed,) = first.appends
    assert needed.records == ()
    taken = processor.producer_id_taken(needed.append_id, FRESH, 0)
    (append,) = taken.appends
    assert [record.key for record in append.records] == [b"new"]
    committed = processor.committed(append.append_id, Offset(0), 0)
    assert said([first, taken, committed]) == [("new", FRESH), ("old", None)]
    assert [append.records for append in committed.appends] == [()], "the next one needs its own"


def test_where_there_is_no_producer_id_the_event_fails_and_the_next_is_decided() -> None:
    processor, first = asked("new", "old")
    error = ErrorCode.coordinator_load_in_progress
    failed = processor.append_failed(first.appends[0].append_id, error, 0)
    assert said([first, failed]) == [error, ("old", None)]
    assert not processor.is_pending("id")


def test_an_event_whose_connection_closed_leaves_its_producer_id_unused() -> None:
    processor, first = asked("new", "old")
    processor.drop("new", "request new")
    taken = processor.producer_id_taken(first.appends[0].append_id, FRESH, 0)
    assert said([first, taken]) == [("old", None)]
    assert taken.appends == []


def test_a_resigned_shard_needs_no_producer_id() -> None:
    processor, first = asked("new", "old")
    resigned = processor.resign(0)
    assert said([resigned]) == [ErrorCode.not_coordinator] * 2
    taken = processor.producer_id_taken(first.appends[0].append_id, FRESH, 0)
    assert taken == ([], [], [], [])
