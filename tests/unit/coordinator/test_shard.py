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
from oncelog.core.errors import ErrorCode
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
