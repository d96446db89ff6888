"""What a shard need not write: the defaults do nothing, and hold nobody back."""

from typing import Never

from oncelog.coordinator import (
    NOTHING,
    CoordinatorRecord,
    CoordinatorShard,
    Decision,
    EventContext,
    RecordContext,
)
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import Offset, ProducerEpoch, ProducerId
from tests.unit.coordinator.support import at


class Least(CoordinatorShard[str, Never, Never]):
    """The least that a shard has to say."""

    def decide(self, event: str, context: EventContext) -> Decision[str, Never, Never]:
        return NOTHING

    def replay(self, record: CoordinatorRecord, context: RecordContext) -> None:
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
    least.replay_end_transaction_marker(ProducerId(1), ProducerEpoch(0), True, Offset(0))
    least.dropped(1)
    assert vars(least) == {}
