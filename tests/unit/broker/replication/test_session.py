"""A follower's fetch session: what a request has to say, and what begins it anew."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from oncelog.broker.replication.session import FollowerSession, Key
from oncelog.core.cluster_limits import FETCH_CHANGES_COUNT_MAX
from oncelog.core.errors import ErrorCode
from oncelog.core.limits import INT32_MAX
from oncelog.protocol.fetch import FetchPartition

NONE = ErrorCode.none
TOPIC, OTHER = UUID(int=1), UUID(int=2)


class Sent(NamedTuple):
    """One request: its session, what it asks, what leaves the session."""

    session_id: int
    epoch: int
    asked: dict[Key, int]
    """Fetch offsets."""
    forgotten: set[Key]


def at(number: int, offset: int, leader_epoch: int = 1) -> FetchPartition:
    return FetchPartition(number, offset, 100, leader_epoch)


def sent(session: FollowerSession) -> Sent:
    session_id, epoch, topics, forgotten = session.next()
    asked = {
        (topic.topic_id, each.partition): each.fetch_offset
        for topic in topics
        for each in topic.partitions
        if topic.topic_id is not None
    }
    left = {(topic.topic_id, n) for topic in forgotten for n in topic.partitions if topic.topic_id}
    return Sent(session_id, epoch, asked, left)


def begun(*numbers: int) -> FollowerSession:
    session = FollowerSession()
    for number in numbers:
        session.want((TOPIC, number), at(number, 0))
    sent(session)
    assert session.answered(NONE, 77)
    return session


def test_the_first_request_asks_everything_and_begins_a_session() -> None:
    session = FollowerSession()
    session.want((TOPIC, 0), at(0, 5))
    session.want((OTHER, 0), at(0, 6))
    assert sent(session) == (0, 0, {(TOPIC, 0): 5, (OTHER, 0): 6}, set())


def test_later_requests_ask_what_has_changed() -> None:
    session = begun(0, 1)
    session.want((TOPIC, 0), at(0, 0))
    session.want((TOPIC, 1), at(1, 9))
    assert sent(session) == (77, 1, {(TOPIC, 1): 9}, set())
    assert session.answered(NONE, 77)
    assert sent(session) == (77, 2, {}, set())


def test_a_new_leader_epoch_is_asked_at_the_same_offset() -> None:
    session = begun(0)
    session.want((TOPIC, 0), at(0, 0, leader_epoch=2))
    assert sent(session).asked == {(TOPIC, 0): 0}
    assert session.asked[TOPIC, 0].current_leader_epoch == 2


def test_what_is_not_wanted_any_more_leaves_and_can_come_back() -> None:
    session = begun(0, 1, 2)
    session.want((TOPIC, 0), None)
    session.want((TOPIC, 2), None)
    assert sent(session) == (77, 1, {}, {(TOPIC, 0), (TOPIC, 2)})
    assert (TOPIC, 0) not in session.asked
    session.answered(NONE, 77)
    session.want((TOPIC, 0), at(0, 0))
    assert sent(session) == (77, 2, {(TOPIC, 0): 0}, set())


def test_what_left_before_it_was_asked_is_not_named() -> None:
    session = begun(0)
    session.want((TOPIC, 5), at(5, 0))
    session.want((TOPIC, 5), None)
    assert sent(session) == (77, 1, {}, set())


def test_a_topic_made_again_under_its_name_is_another() -> None:
    session = begun(0)
    session.want((TOPIC, 0), None)
    session.want((OTHER, 0), at(0, 0))
    assert sent(session) == (77, 1, {(OTHER, 0): 0}, {(TOPIC, 0)})


def test_a_session_that_the_leader_forgot_is_begun_anew_with_everything() -> None:
    session = begun(0, 1)
    sent(session)
    for error in (
        ErrorCode.fetch_session_id_not_found,
        ErrorCode.invalid_fetch_session_epoch,
        ErrorCode.fetch_session_topic_id_error,
    ):
        assert session.was_lost(error)
    assert not session.answered(ErrorCode.fetch_session_id_not_found, 0)
    assert sent(session) == (0, 0, {(TOPIC, 0): 0, (TOPIC, 1): 0}, set())
    assert not session.was_lost(ErrorCode.fetch_session_id_not_found), "it would ask without end"


def test_without_a_session_each_request_asks_everything() -> None:
    session = FollowerSession()
    session.want((TOPIC, 0), at(0, 0))
    for _ in range(2):
        assert sent(session) == (0, 0, {(TOPIC, 0): 0}, set())
        assert session.answered(NONE, 0)


def test_the_epoch_of_a_session_begins_again_at_one() -> None:
    session = begun(0)
    session._epoch = INT32_MAX
    session.answered(NONE, 77)
    assert sent(session).epoch == 1


def test_a_request_changes_a_limited_number_of_partitions() -> None:
    session = FollowerSession()
    count = FETCH_CHANGES_COUNT_MAX + 3
    for number in range(count):
        session.want((TOPIC, number), at(number, 0))
    assert len(sent(session).asked) == FETCH_CHANGES_COUNT_MAX
    session.answered(NONE, 77)
    assert len(sent(session).asked) == 3
    assert len(session.asked) == count


def test_what_is_followed_no_more_leaves_before_anything_else_is_asked() -> None:
    """What stays in a session unnamed confirms its leader."""
    session = begun(*range(FETCH_CHANGES_COUNT_MAX + 1))
    assert len(sent(session).asked) == 1, "the last one joins with the second request"
    assert session.answered(NONE, 77)
    for number in range(FETCH_CHANGES_COUNT_MAX):
        session.want((TOPIC, number), at(number, 1))
    last = FETCH_CHANGES_COUNT_MAX
    session.want((TOPIC, last), at(last, 1, leader_epoch=2))
    session.want((OTHER, 0), at(0, 1))
    found = sent(session)
    assert (TOPIC, last) in found.asked
    assert session.answered(NONE, 77)
    for number in range(FETCH_CHANGES_COUNT_MAX + 1):
        session.want((TOPIC, number), None)
    assert sent(session)[:2] == (77, 0), "more than one request can say: the session begins anew"
    assert session.asked.keys() == {(OTHER, 0)}
