"""A round of confirmations: once it is over, no other broker led when it began."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import pytest
from hypothesis import given as hypothesis_given
from hypothesis import settings
from hypothesis import strategies as st

from oncelog.core.errors import ErrorCode
from oncelog.replication.leader import LeaderState
from oncelog.replication.roles import resign
from tests.support.examples import examples
from tests.unit.replication.support import ME, given, lead, replica, take


def leader(*isr: int, replicas: tuple[int, ...] | None = None) -> LeaderState:
    return lead(replica(), given((ME, *isr), replicas=replicas))


def fetch(state: LeaderState, who: int, confirmed_round: int = 0) -> ErrorCode:
    return state.follower_fetched(
        who, 0, log_end_offset=0, now_ms=0, confirmed_round=confirmed_round
    )


def is_over(state: LeaderState, number: int) -> bool:
    return state.confirmed_round >= number


def test_who_leads_alone_needs_no_round() -> None:
    lone = take(replica(), given((ME,)))
    assert lone.is_lone
    assert lone.confirmed_round >= lone.begin_round()
    alone = leader(replicas=(ME, 2))
    assert not alone.is_lone
    assert is_over(alone, alone.begin_round())


def test_a_round_is_over_when_each_follower_has_fetched_after_its_answer() -> None:
    state = leader(2, 3)
    number = state.begin_round()
    fetch(state, 2)
    fetch(state, 3)
    assert not is_over(state, number), "these may have been sent before it began"
    for who in (2, 3):
        assert not is_over(state, number)
        assert state.awaits(who)
        fetch(state, who, state.carry_round())
        assert not state.awaits(who)
    assert is_over(state, number)


def test_an_answer_from_before_a_round_confirms_nothing_of_it() -> None:
    state = leader(2)
    before = state.carry_round()
    number = state.begin_round()
    fetch(state, 2, before)
    assert not is_over(state, number)


def test_one_round_serves_all_that_ask_until_an_answer_carries_it() -> None:
    state = leader(2)
    number = state.begin_round()
    assert state.begin_round() == number
    carried = state.carry_round()
    later = state.begin_round()
    assert later > number
    fetch(state, 2, carried)
    assert is_over(state, number)
    assert not is_over(state, later)


def test_a_fetch_that_does_not_count_confirms_nothing() -> None:
    """It is of an earlier life of its broker, or beyond the log."""
    state = leader(2)
    state.follower_fetched(2, 0, log_end_offset=0, now_ms=0, broker_epoch=5)
    number = state.begin_round()
    carried = state.carry_round()
    for offset, life in ((0, 4), (1, 5)):
        state.follower_fetched(
            2, offset, log_end_offset=0, now_ms=0, broker_epoch=life, confirmed_round=carried
        )
        assert not is_over(state, number)


def test_followers_that_may_have_joined_have_to_confirm_and_others_not() -> None:
    state = leader(2, replicas=(ME, 2, 3, 4))
    state.ask(((ME, 0), (2, 0), (3, 0)))
    number = state.begin_round()
    fetch(state, 2, state.carry_round())
    assert not is_over(state, number)
    assert state.awaits(3)
    assert not state.awaits(4)
    fetch(state, 3, state.carry_round())
    assert is_over(state, number)


def test_who_has_left_the_isr_confirms_no_more() -> None:
    state = leader(2, 3)
    number = state.begin_round()
    fetch(state, 2, state.carry_round())
    state = lead(state, given((ME, 2), replicas=(ME, 2, 3), partition_epoch=1))
    assert is_over(state, number)


@pytest.mark.parametrize("resigns", [False, True])
def test_what_an_earlier_leadership_answered_confirms_nothing(resigns: bool) -> None:
    """Also where the role is given up and taken again by the same state."""
    state = leader(2)
    state.begin_round()
    carried = state.carry_round()
    if resigns:
        state = lead(resign(state), given((ME, 2)))
    else:
        state = lead(take(state, given((ME, 2), leader=2, epoch=1)), given((ME, 2), epoch=2))
    number = state.begin_round()
    assert number > carried
    fetch(state, 2, carried)
    assert not is_over(state, number)


# --- against followers that move to a later leader, over connections that are read late

FOLLOWERS = (2, 3)
STEP = st.tuples(
    st.sampled_from(("send", "read", "read", "answer", "answer", "reconnect", "move", "begin")),
    st.sampled_from(FOLLOWERS),
    st.integers(0, 2),
)


@dataclass
class Session:
    """A fetch session: one fetch of it is under way at a time."""

    carried: int = 0
    sent: deque[int] = field(default_factory=deque)
    """Leader epochs of fetches that the leader has not read."""
    is_parked: bool = False
    is_answered: bool = True
    """Whether the follower has the answer to its last fetch."""


class Net:
    """A leader, and followers that it hears of late."""

    def __init__(self) -> None:
        self.state = leader(*FOLLOWERS)
        self.sessions = {who: [Session()] for who in FOLLOWERS}
        self.epochs = dict.fromkeys(FOLLOWERS, 0)
        self.begun: list[tuple[int, frozenset[int]]] = []
        """Each round, and who followed a later leader when it was asked for."""

    def carry_out(self, what: str, who: int, which: int) -> None:
        sessions = self.sessions[who]
        old, newest = sessions[which % len(sessions)], sessions[-1]
        if what == "send" and newest.is_answered:
            newest.sent.append(self.epochs[who])
            newest.is_answered = False
        elif what == "read" and old.sent:
            if old.sent.popleft() == self.state.leader_epoch:
                fetch(self.state, who, old.carried)
                old.is_parked = True
        elif what == "answer" and old.is_parked:
            old.is_parked = False
            old.carried = self.state.carry_round()
            old.is_answered = True
        elif what == "reconnect":
            sessions.append(Session())
        elif what == "move":
            self.epochs[who] = 1
        elif what == "begin":
            moved = frozenset(each for each, epoch in self.epochs.items() if epoch)
            self.begun.append((self.state.begin_round(), moved))


@settings(max_examples=examples(300))
@hypothesis_given(st.lists(STEP, max_size=60))
def test_no_round_is_over_that_began_after_a_follower_took_a_later_epoch(
    steps: list[tuple[str, int, int]],
) -> None:
    net = Net()
    for step in steps:
        net.carry_out(*step)
        for number, moved in net.begun:
            assert not (moved and is_over(net.state, number))


@settings(max_examples=examples(50))
@hypothesis_given(st.lists(STEP.filter(lambda step: step[0] != "move"), max_size=40))
def test_a_round_is_over_once_its_followers_are_heard_twice(
    steps: list[tuple[str, int, int]],
) -> None:
    net = Net()
    for step in steps:
        net.carry_out(*step)
    number = net.state.begin_round()
    for who in FOLLOWERS:
        net.carry_out("reconnect", who, 0)
        newest = len(net.sessions[who]) - 1
        for what in ("send", "read", "answer", "send", "read"):
            net.carry_out(what, who, newest)
    assert is_over(net.state, number)
