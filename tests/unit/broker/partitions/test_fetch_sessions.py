"""Fetch sessions (KIP-227): what is remembered, what is left out, who gives way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oncelog.broker.partitions.fetch_sessions import FetchContext, FetchSessions
from oncelog.core.errors import ErrorCode
from oncelog.core.limits import FETCH_SESSION_EVICTION_MS, INT32_MAX, TOPIC_NAME_LENGTH_MAX
from oncelog.protocol.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchTopic,
    FetchTopicResponse,
    ForgottenTopic,
)
from oncelog.protocol.fetch_values import HIGH_WATERMARK_UNKNOWN

VERSION = 12
LATER_MS = FETCH_SESSION_EVICTION_MS + 1


def request(
    session_id: int = 0,
    epoch: int = 0,
    partitions: Sequence[int] = (),
    *,
    forget: Sequence[int] = (),
    offset: int = 0,
    high_watermark: int = HIGH_WATERMARK_UNKNOWN,
    log_start: int = -1,
) -> FetchRequest:
    said: dict[str, Any] = {"log_start_offset": log_start, "high_watermark": high_watermark}
    asked = [FetchPartition(p, offset, 100, **said) for p in partitions]
    topics = [FetchTopic("t", None, asked)]
    return FetchRequest(
        0,
        0,
        session_id=session_id,
        session_epoch=epoch,
        topics=topics if partitions else [],
        forgotten_topics=[ForgottenTopic("t", None, forget)] if forget else [],
    )


def found(*answers: FetchPartitionResponse) -> list[FetchTopicResponse]:
    return [FetchTopicResponse("t", None, answers)]


def at(
    partition: int, high_watermark: int = 0, records: bytes | None = None, error: int = 0
) -> FetchPartitionResponse:
    if error:
        return FetchPartitionResponse(partition, error)
    return FetchPartitionResponse(partition, 0, high_watermark, high_watermark, 0, None, records)


class Fetching:
    """A client that fetches through the sessions of a broker."""

    def __init__(self, sessions: FetchSessions) -> None:
        self.sessions = sessions
        self.session_id = 0
        self.epoch = 0

    def begin(self, asked: FetchRequest, now_ms: int = 0) -> FetchContext:
        context = self.sessions.begin(asked, VERSION, now_ms)
        assert isinstance(context, FetchContext)
        return context

    def full(self, partitions: Sequence[int], now_ms: int = 0) -> int:
        asked = request(partitions=partitions)
        answer = self.begin(asked, now_ms).answer(found(*map(at, partitions)), now_ms)
        assert answer.error is ErrorCode.none
        self.session_id, self.epoch = answer.session_id, 1
        return self.session_id

    def more(self, *partitions: int, now_ms: int = 0, **options: object) -> FetchContext:
        asked = request(self.session_id, self.epoch, partitions, **options)  # type: ignore[arg-type]
        self.epoch += 1
        return self.begin(asked, now_ms)


def read_order(context: FetchContext) -> list[int]:
    return [asked.partition for topic in context.topics for asked in topic.partitions]


def told(context: FetchContext, *answers: FetchPartitionResponse) -> list[int]:
    response = context.answer(found(*answers), 0)
    assert response.error is ErrorCode.none
    return [answer.partition for topic in response.topics for answer in topic.partitions]


def test_an_incremental_fetch_reads_all_partitions_and_tells_only_news() -> None:
    client = Fetching(FetchSessions(10))
    assert client.full([0, 1, 2]) > 0
    context = client.more()
    assert read_order(context) == [0, 1, 2]
    assert told(context, at(0), at(1, 5), at(2)) == [1]
    assert told(client.more(), at(0), at(1, 5), at(2)) == []


def test_a_partition_that_gave_records_is_read_last_next_time() -> None:
    client = Fetching(FetchSessions(10))
    client.full([0, 1, 2])
    assert told(client.more(), at(0, 5, b"records"), at(1), at(2)) == [0]
    assert read_order(client.more()) == [1, 2, 0]


def test_an_error_is_told_each_time_and_its_end_too() -> None:
    client = Fetching(FetchSessions(10))
    client.full([0])
    error = int(ErrorCode.not_leader_or_follower)
    assert told(client.more(), at(0, error=error)) == [0]
    assert told(client.more(), at(0, error=error)) == [0]
    assert told(client.more(), at(0)) == [0]
    assert told(client.more(), at(0)) == []


def test_a_follower_that_says_an_older_high_watermark_is_told_it_again() -> None:
    client = Fetching(FetchSessions(10))
    client.full([0])
    diverging = at(0, 3)._replace(diverging_epoch=(1, 3))
    assert told(client.more(0, offset=5, high_watermark=0), diverging) == [0]
    assert told(client.more(0, offset=3, high_watermark=0), at(0, 3)) == [0]
    assert told(client.more(0, offset=3, high_watermark=3), at(0, 3)) == []
    # What it does not have yet comes with the records.
    assert told(client.more(0, offset=3, high_watermark=3), at(0, 4)) == [0]
    assert told(client.more(0, offset=3, high_watermark=3), at(0, 4)) == []


def test_a_follower_that_says_an_older_log_start_is_told_it_again() -> None:
    """Else it never joins the ISR again: as a leader it would bring deleted records back."""
    client = Fetching(FetchSessions(10))
    client.full([0])
    now = at(0, 5)._replace(log_start_offset=5)
    diverging = now._replace(diverging_epoch=(1, 5))
    assert told(client.more(0, offset=6, high_watermark=5, log_start=4), diverging) == [0]
    assert told(client.more(0, offset=5, high_watermark=5, log_start=4), now) == [0]
    assert told(client.more(0, offset=5, high_watermark=5, log_start=5), now) == []
    # Below the leader's start it is to begin again; a consumer says nothing of a log.
    assert told(client.more(0, offset=4, high_watermark=4, log_start=4), now) == []
    assert told(client.more(0, offset=5), now) == []


def test_partitions_are_added_changed_and_forgotten() -> None:
    sessions = FetchSessions(10)
    client = Fetching(sessions)
    client.full([0, 1])
    context = client.more(1, 2, forget=[0], offset=7)
    assert read_order(context) == [1, 2]
    assert {asked.fetch_offset for topic in context.topics for asked in topic.partitions} == {7}
    assert sessions.partitions_count == 2


def test_a_topic_is_told_in_brief_while_the_session_has_a_partition_of_it() -> None:
    client = Fetching(FetchSessions(10))
    client.full([0, 1])
    of_another = FetchTopic("u", None, [FetchPartition(number, 0, 100) for number in (0, 3)])
    more = request(client.session_id, 1, forget=[1])._replace(topics=[of_another])
    brief = client.begin(more).topics_in_brief()
    assert [(topic.name, len(topic.partitions)) for topic in brief] == [("t", 1), ("u", 2)]
    brief = client.begin(request(client.session_id, 2, forget=[0])).topics_in_brief()
    assert [topic.name for topic in brief] == ["u"]


def test_forgetting_the_last_partition_ends_the_session() -> None:
    sessions = FetchSessions(10)
    client = Fetching(sessions)
    client.full([0])
    assert sessions.begin(request(client.session_id, 1, forget=[0]), VERSION, 0) is None
    assert (len(sessions), sessions.partitions_count) == (0, 0)


def test_a_wrong_id_epoch_or_kind_of_topic_is_refused() -> None:
    sessions = FetchSessions(10)
    client = Fetching(sessions)
    id_ = client.full([0])
    unknown = request(id_ + 1, 1)
    assert sessions.begin(unknown, VERSION, 0) is ErrorCode.fetch_session_id_not_found
    assert sessions.begin(request(id_, 5), VERSION, 0) is ErrorCode.invalid_fetch_session_epoch
    assert sessions.begin(request(id_, 1), 13, 0) is ErrorCode.fetch_session_topic_id_error


def test_a_request_that_was_overtaken_by_the_next_is_refused_when_it_is_answered() -> None:
    client = Fetching(FetchSessions(10))
    client.full([0])
    first = client.more()
    client.more()
    assert first.answer(found(at(0)), 0).error is ErrorCode.invalid_fetch_session_epoch


def test_a_full_fetch_ends_the_session_that_it_names() -> None:
    sessions = FetchSessions(10)
    client = Fetching(sessions)
    id_ = client.full([0])
    assert sessions.begin(request(id_, -1, [0]), VERSION, 0) is None
    assert len(sessions) == 0


def test_the_epoch_wraps_to_one() -> None:
    sessions = FetchSessions(10)
    client = Fetching(sessions)
    id_ = client.full([0])
    sessions._sessions[id_].epoch = INT32_MAX
    client.epoch = INT32_MAX
    client.more()
    client.epoch = 1
    assert read_order(client.more()) == [0]


def test_without_a_free_slot_there_is_no_session() -> None:
    sessions = FetchSessions(1)
    assert Fetching(sessions).full([0]) > 0
    assert Fetching(sessions).full([0, 1, 2], now_ms=1) == 0
    assert Fetching(FetchSessions(0)).full([0]) == 0


def test_an_unused_session_is_evicted() -> None:
    sessions = FetchSessions(1)
    Fetching(sessions).full([0, 1, 2])
    assert Fetching(sessions).full([0], now_ms=LATER_MS) > 0
    assert (len(sessions), sessions.evictions_count, sessions.partitions_count) == (1, 1, 1)


def test_an_old_session_gives_way_to_a_larger_one_only() -> None:
    sessions = FetchSessions(1)
    old = Fetching(sessions)
    old.full([0, 1])
    old.more(now_ms=LATER_MS)
    assert Fetching(sessions).full([0, 1], now_ms=LATER_MS) == 0
    assert Fetching(sessions).full([0, 1, 2], now_ms=LATER_MS) > 0


def test_all_sessions_together_remember_a_limited_number_of_partitions() -> None:
    sessions = FetchSessions(10, partitions_count_max=3)
    client = Fetching(sessions)
    assert client.full([0, 1]) > 0
    assert Fetching(sessions).full([0, 1]) == 0
    grown = request(client.session_id, 1, [2, 3])
    assert sessions.begin(grown, VERSION, 0) is ErrorCode.fetch_session_id_not_found
    assert (len(sessions), sessions.partitions_count) == (0, 0)


def test_a_name_that_no_topic_can_have_is_not_remembered() -> None:
    sessions = FetchSessions(10)
    name = "x" * (TOPIC_NAME_LENGTH_MAX + 1)
    strange = [FetchTopic(name, None, [FetchPartition(0, 0, 100)])]
    context = sessions.begin(request()._replace(topics=strange), VERSION, 0)
    assert isinstance(context, FetchContext)
    answered = [FetchTopicResponse(name, None, [at(0, error=3)])]
    assert context.answer(answered, 0).session_id == 0
    client = Fetching(sessions)
    grown = request(client.full([0]), 1)._replace(topics=strange)
    assert sessions.begin(grown, VERSION, 0) is ErrorCode.fetch_session_id_not_found
    assert (len(sessions), sessions.partitions_count) == (0, 0)
