from collections.abc import Hashable

from hypothesis import given
from hypothesis import strategies as st

from oncelog.coordinator.timers import Timers

KEYS: list[Hashable] = ["a", 7, None, ("d", 0)]
"""A heap could not compare them."""


def test_a_deadline_moves_both_ways() -> None:
    timers: Timers[Hashable] = Timers()
    timers.set(KEYS[0], 10)
    timers.set(KEYS[0], 20)
    assert timers.due(19) == []
    timers.set(KEYS[0], 15)
    assert timers.next_deadline_ms() == 15
    assert timers.due(15) == [KEYS[0]]
    assert len(timers) == 0


def test_a_deadline_that_is_moved_before_anothers_counts() -> None:
    timers: Timers[Hashable] = Timers()
    timers.set(KEYS[0], 30)
    timers.set(KEYS[1], 20)
    timers.set(KEYS[0], 10)
    assert timers.next_deadline_ms() == 10
    assert timers.due(30) == KEYS[:2]


def test_the_next_look_is_at_the_earliest_deadline() -> None:
    timers: Timers[Hashable] = Timers()
    timers.set(KEYS[0], 30)
    timers.set(KEYS[1], 20)
    assert timers.next_look_ms() == 20


operations = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.sampled_from(KEYS), st.integers(0, 50)),
        st.tuples(st.just("cancel"), st.sampled_from(KEYS), st.just(0)),
        st.tuples(st.just("due"), st.just(KEYS[0]), st.integers(0, 50)),
    )
)


@given(operations)
def test_timers_do_what_a_plain_map_does(steps: list[tuple[str, Hashable, int]]) -> None:
    timers: Timers[Hashable] = Timers()
    model: dict[Hashable, int] = {}
    for kind, key, ms in steps:
        if kind == "set":
            timers.set(key, ms)
            model[key] = ms
        elif kind == "cancel":
            timers.cancel(key)
            model.pop(key, None)
        else:
            due = {key for key, deadline_ms in model.items() if deadline_ms <= ms}
            found = timers.due(ms)
            assert set(found) == due
            assert found == sorted(found, key=model.__getitem__), "the earliest first"
            model = {key: at for key, at in model.items() if key not in due}
        assert timers.next_deadline_ms() == min(model.values(), default=None)
        assert all((key in timers) == (key in model) for key in KEYS)
