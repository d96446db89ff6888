"""A leader against a plain model: the high watermark is the smallest end over the maximal ISR.

The model keeps what was told and works the rest out from it each time. It shares nothing with the
leader but the values.
"""

from __future__ import annotations

from hypothesis import given as hypothesis_given
from hypothesis import settings
from hypothesis import strategies as st

from oncelog.core.errors import ErrorCode
from oncelog.replication.leader import LeaderState
from oncelog.replication.replica import Assignment, IsrMembers
from oncelog.replication.roles import resign
from tests.support.examples import examples
from tests.unit.replication.support import ME, given, lead, replica

OTHERS = (2, 3, 4)
REPLICAS = (ME, *OTHERS)
Operation = tuple[object, ...]

FOLLOWER = st.sampled_from(OTHERS)
OPERATIONS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 5)),
    st.tuples(st.just("fetch"), FOLLOWER, st.integers(0, 6), st.sampled_from((0, 0, 0, 1))),
    st.tuples(st.just("diverge"), FOLLOWER),
    st.tuples(st.just("ask"), st.sets(FOLLOWER)),
    st.tuples(st.just("refuse"), st.integers(0, 3)),
    st.tuples(st.just("state"), st.sets(FOLLOWER), st.integers(1, 4)),
    st.tuples(st.just("the same state"), st.integers(1, 4)),
    st.tuples(st.just("epoch"), st.sets(FOLLOWER)),
    st.tuples(st.just("move")),
)


class Model:
    """What a leader was told. `ends` are those of fetches in this leadership."""

    def __init__(self) -> None:
        self.end = 0
        self.high_watermark = 0
        self.isr: set[int] = set(REPLICAS)
        self.minimum = 1
        self.asked: list[IsrMembers] = []
        self.ends: dict[int, int] = {}
        self.lives = dict.fromkeys(OTHERS, 0)
        self.epochs = [0, 0]
        self.commit()

    @property
    def maximal(self) -> set[int]:
        """The ISR that the controller may have written."""
        return self.isr.union(*({each for each, _ in members} for members in self.asked))

    def commit(self) -> None:
        if len(self.isr) >= self.minimum:
            ends = [self.ends.get(each, 0) for each in self.maximal - {ME}]
            self.high_watermark = max(self.high_watermark, min([self.end, *ends]))


class Pair:
    """A leader and the model, which are told the same."""

    def __init__(self) -> None:
        self.model = Model()
        self.state: LeaderState = lead(replica(), self.written())

    def written(self) -> Assignment:
        """The state that the controller has written."""
        model = self.model
        epoch, partition_epoch = model.epochs
        return given(
            tuple(sorted(model.isr)),
            replicas=REPLICAS,
            epoch=epoch,
            partition_epoch=partition_epoch,
            min_isr=model.minimum,
        )

    def append(self, count: int) -> None:
        self.model.end += count
        self.state.local_end_moved(self.model.end)

    def fetch(self, follower: int, back: int, lives: int) -> None:
        model = self.model
        model.lives[follower] += lives
        offset = max(0, model.end - back)
        error = self.state.follower_fetched(
            follower,
            offset,
            log_end_offset=model.end,
            now_ms=0,
            broker_epoch=model.lives[follower],
        )
        assert error is ErrorCode.none
        model.ends[follower] = offset

    def diverge(self, follower: int) -> None:
        self.model.ends[follower] = 0
        self.state.diverged(follower)

    def ask(self, added: set[int]) -> None:
        members = tuple((each, self.model.lives.get(each, 0)) for each in sorted({ME, *added}))
        if added - self.model.isr and members not in self.model.asked:
            self.model.asked.append(members)
        self.state.ask(members)

    def refuse(self, which: int) -> None:
        if which < len(self.model.asked):
            self.state.refused(self.model.asked.pop(which))

    def take(self, isr: set[int], minimum: int, *, epochs: tuple[int, int]) -> None:
        model = self.model
        model.isr, model.minimum = {ME, *isr}, minimum
        model.epochs = [model.epochs[0] + epochs[0], model.epochs[1] + epochs[1]]
        if any(epochs):
            model.asked = []
        if epochs[0]:
            model.ends = {}
        self.state = lead(self.state, self.written())

    def move(self) -> None:
        """Give the role up and take it again by the same state: followers start anew."""
        self.model.ends = {}
        resigned = resign(self.state)
        assert resigned.high_watermark == self.model.high_watermark
        self.state = lead(resigned, self.written())

    def carry_out(self, operation: Operation) -> None:
        match operation:
            case ("state", set() as isr, int(minimum)):
                self.take(isr, minimum, epochs=(0, 1))
            case ("the same state", int(minimum)):
                self.take(self.model.isr - {ME}, minimum, epochs=(0, 0))
            case ("epoch", set() as isr):
                self.take(isr, self.model.minimum, epochs=(1, 1))
            case (str(name), *values):
                getattr(self, name)(*values)
        self.model.commit()


@settings(max_examples=examples(200))
@hypothesis_given(st.lists(OPERATIONS, max_size=40))
def test_inv7_the_high_watermark_is_the_smallest_end_of_all_that_may_be_in_sync(
    operations: list[Operation],
) -> None:
    """It stands while the committed ISR is too small (KIP-966), and it never falls."""
    pair = Pair()
    for operation in operations:
        before = pair.state.high_watermark
        pair.carry_out(operation)
        state, model = pair.state, pair.model
        assert state.high_watermark == model.high_watermark
        assert state.high_watermark >= before
        assert state.isr | state.joining == model.maximal
