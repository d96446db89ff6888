"""What a shard need not write: the defaults do nothing, and hold nobody back."""

from typing import Never

from oncelog.coordinator import (
    NOTHING,
    CoordinatorShard,
    Decision,
    EventContext,
    RecordContext,
    Step,
)
from oncelog.coordinator.shard import UnknownKind, clock_shift_ms
from oncelog.core.errors import ErrorCode
from oncelog.core.limits import CLOCK_JUMP_MS_MIN
from tests.unit.coordinator.support import at


class Least(CoordinatorShard[str, Never, Never]):
    """The least that a shard has to say."""

    def decide(self, event: str, context: EventContext) -> Decision[str, Never, Never]:
        return NOTHING

    def replay(self, step: Step, context: RecordContext) -> None:
        return

    def failed(
        self, event: str, error: ErrorCode, context: EventContext
    ) -> Decision[str, Never, Never]:
        return NOTHING


def test_the_defaults() -> None:
    least = Least()
    assert least.id_of("e") is None
    assert not least.overtakes("e")
    assert least.park("e", at()) == "e"
    assert list(least.tick(0)) == []
    assert least.next_deadline_ms() is None
    assert least.on_loaded(at()) == least.on_unloaded(at()) == NOTHING
    assert least.dropped("e", 1) is None
    assert vars(least) == {}


def test_a_clock_was_set_by_what_a_record_is_newer_than_its_value() -> None:
    jump_ms = CLOCK_JUMP_MS_MIN
    assert clock_shift_ms(5, 5 + jump_ms) == jump_ms
    assert clock_shift_ms(5 + jump_ms, 5) == -jump_ms
    assert clock_shift_ms(5, 4 + jump_ms) == clock_shift_ms(4 + jump_ms, 5) == 0


def test_a_record_of_an_unknown_type_is_named_by_it() -> None:
    assert str(UnknownKind(b"\0\7the rest")) == "records of type 7 are not known"
