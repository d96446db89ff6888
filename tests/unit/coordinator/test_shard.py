"""What a shard need not write: the defaults do nothing, and hold nobody back."""

from oncelog.coordinator import (
    NOTHING,
    CoordinatorRecord,
    CoordinatorShard,
    Decision,
    RecordContext,
    Token,
)
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import Offset, ProducerEpoch, ProducerId


class Least(CoordinatorShard):
    """The least that a shard has to say."""

    def decide(self, event: object, token: Token | None, now_ms: int) -> Decision:
        return NOTHING

    def apply(self, entry: CoordinatorRecord, context: RecordContext) -> None:
        return

    def failed(self, event: object, token: Token | None, error: ErrorCode, now_ms: int) -> Decision:
        return NOTHING


def test_the_defaults() -> None:
    least = Least()
    assert least.id_of("e") is None
    assert not least.overtakes("e")
    assert least.park("e", None) == "e"
    assert list(least.tick(0)) == []
    assert least.next_deadline_ms() is None
    assert least.on_loaded(0) == least.on_unloaded() == NOTHING
    least.replay_end_transaction_marker(ProducerId(1), ProducerEpoch(0), True, Offset(0))
    least.dropped(1)
    assert vars(least) == {}
