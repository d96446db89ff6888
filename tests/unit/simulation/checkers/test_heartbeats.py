"""Heartbeats of classic groups, answered by a coordinator that was replaced or forgot."""

import pytest

from oncelog.simulation.history import Assigned, ClassicHeartbeat, Joined, LateRequest
from tests.unit.simulation.checkers.model import T0, Model

STALE = "INV-8: a heartbeat of a generation that was over was accepted"
EARLY = "early-expulsion: a member was taken out before its session was over"
SESSION_S = 2.0


class Members:
    """Members of a group "g", called as their clients."""

    def __init__(self) -> None:
        self.model = Model()

    def enter(self, who: str, generation: int) -> None:
        self.model.record(Joined, who, "g", who, generation, "range", False)
        self.model.record(Assigned, who, "g", who, generation, (T0,))

    def beat(self, who: str, generation: int, error: str = "", asked_s: float = 0.0) -> None:
        at_s = asked_s or self.model.now_s + 0.005
        self.model.record(ClassicHeartbeat, who, "g", who, generation, error, at_s, SESSION_S)

    def signatures(self) -> set[str]:
        return self.model.signatures()


def test_a_heartbeat_in_a_generation_that_was_over_is_found() -> None:
    members = Members()
    members.enter("a", 1)
    members.enter("b", 2)
    members.beat("a", 1)
    assert members.signatures() == {STALE}


def test_a_heartbeat_that_was_sent_before_the_next_generation_is_none() -> None:
    members = Members()
    members.enter("a", 1)
    sent_s = members.model.now_s
    members.enter("b", 2)
    members.beat("a", 1, asked_s=sent_s)
    members.beat("a", 1, error="illegal_generation")
    assert members.signatures() == set()


def test_a_group_that_was_deleted_may_begin_again() -> None:
    members = Members()
    members.enter("b", 2)
    members.enter("a", 1)
    members.beat("a", 1)
    assert members.signatures() == set()


@pytest.mark.parametrize(("silent_s", "found"), [(0.5, {EARLY}), (2.5, set())])
def test_a_member_that_was_heard_in_time_is_not_expelled(silent_s: float, found: set[str]) -> None:
    members = Members()
    members.enter("a", 1)
    members.beat("a", 1)
    members.model.now_s += silent_s
    members.beat("a", 1, error="unknown_member_id")
    assert members.signatures() == found


def test_a_request_that_came_late_may_have_been_a_leave() -> None:
    members = Members()
    members.enter("a", 1)
    members.beat("a", 1)
    members.model.record(LateRequest, "a")
    members.beat("a", 1, error="unknown_member_id")
    assert members.signatures() == set()
