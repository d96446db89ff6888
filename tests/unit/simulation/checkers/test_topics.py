"""Which incarnation of a topic something met."""

from oncelog.simulation.checkers.topics import NEVER, TopicIncarnations
from oncelog.simulation.history import TopicChanged, TopicChanging


def topics(*changes: tuple[str, str]) -> TopicIncarnations:
    """Changes one second apart, from 1 on: ("ask" or "answer", what)."""
    made = TopicIncarnations()
    for at_s, (which, change) in enumerate(changes, start=1):
        kind = TopicChanging if which == "ask" else TopicChanged
        made.add(kind(float(at_s), "admin", "t", change))
    return made


ASK_DELETE, DELETED = ("ask", "delete"), ("answer", "delete")
ASK_CREATE, CREATED = ("ask", "create"), ("answer", "create")


def test_a_topic_that_is_never_deleted_has_one_incarnation() -> None:
    for made in (topics(), topics(ASK_CREATE, CREATED), topics(("ask", "partitions"))):
        assert made.incarnation("t", 0.0, 99.0) == 0
        assert made.last("t") == 0
        assert not made.was_deleted("t")


def test_nothing_is_known_from_the_deletions_request_to_the_creations_answer() -> None:
    made = topics(ASK_DELETE, DELETED, ASK_CREATE, CREATED)
    assert made.incarnation("t", 0.0, 0.9) == 0
    assert made.incarnation("t", 0.0, 1.5) is None
    assert made.incarnation("t", 2.5, 2.6) is None
    assert made.incarnation("t", 3.5, 9.0) is None
    assert made.incarnation("t", 4.0, 9.0) == 1
    assert made.last("t") == 1


def test_a_topic_made_in_the_run_is_there_from_its_answer_on() -> None:
    made = topics(ASK_CREATE, CREATED, ASK_DELETE)
    assert made.incarnation("t", 0.5, 0.6) is None
    assert made.incarnation("t", 2.0, 3.0) == 0
    assert made.last("t") is None


def test_a_creation_asked_for_before_the_deletion_says_nothing() -> None:
    made = topics(ASK_CREATE, ASK_DELETE, CREATED)
    assert made.last("t") is None


def test_a_deletions_late_answer_closes_what_was_created_before_it() -> None:
    made = topics(ASK_DELETE, ASK_CREATE, CREATED, DELETED)
    assert made.incarnation("t", 3.0, 3.5) == 1
    assert made.last("t") is None
    assert NEVER > 0
