"""Whether batch 0 ran, where no marker tells: the opening in the marker topic (INV-10)."""

import threading

import pytest

from oncelog.client.errors import ConnectionLostError, FatalError
from oncelog.core.errors import ErrorCode
from oncelog.spark.errors import FailClosedError
from oncelog.spark.marker import Marker, opened_query
from oncelog.spark.parties import ProducerIdentity, TaskReport
from tests.unit.spark.protocol_fakes import (
    HOUR_S,
    MARKERS,
    WEEK_S,
    Batch,
    Coordinator,
    DiedError,
    Start,
)

JOIN_TIMEOUT_S = 10
MOMENTS = 12
"""More than a first start has: open, the opening, the epoch, marker and offsets, the end."""


def opened(cluster: Coordinator) -> str | None:
    """The query whose opening the marker topic holds."""
    return opened_query(cluster.records.get((MARKERS, b"app"), b"").decode())


def sleep_a_week(cluster: Coordinator) -> None:
    cluster.now_s += WEEK_S
    cluster.expire()


def test_a_marker_topic_tells_nothing_of_a_batch_0_committed_before_it_was_used(
    cluster: Coordinator, start: Start
) -> None:
    planned = Batch(cluster, 0)
    start().process(planned)
    sleep_a_week(cluster)
    for _ in range(2):
        with pytest.raises(FailClosedError, match="planned more than a day ago"):
            start(marker_partition=MARKERS).process(planned)
    assert cluster.committed_rows == ["row 0"]
    assert cluster.records == {}


@pytest.mark.parametrize("pause_s", [0.0, HOUR_S, WEEK_S])
@pytest.mark.parametrize("moment", range(MOMENTS))
@pytest.mark.parametrize("deaths", [1, 2])
@pytest.mark.parametrize("is_prepared", [False, True])
def test_batch_0_is_committed_once_wherever_its_drivers_die_and_however_long_they_rest(
    cluster: Coordinator, start: Start, pause_s: float, moment: int, deaths: int, is_prepared: bool
) -> None:
    planned = Batch(cluster, 0)
    is_known = False
    for life in range(deaths + 1):
        cluster.moments_left = moment if life < deaths else 10**9
        driver = start(marker_partition=MARKERS)
        try:
            if is_prepared and life == 0:
                driver.prepare("q")
            driver.process(planned)
        except DiedError:
            pass
        except FailClosedError:
            assert pause_s == WEEK_S
            assert not is_known
            assert cluster.committed_rows == []
            return
        is_known = opened(cluster) is not None or driver.marker is not None
        cluster.now_s += pause_s
        if pause_s == WEEK_S:
            cluster.expire()
    assert cluster.committed_rows == ["row 0"]


@pytest.mark.parametrize("moment", range(MOMENTS))
def test_an_application_that_gets_a_marker_topic_later_never_writes_batch_0_twice(
    cluster: Coordinator, start: Start, moment: int
) -> None:
    planned = Batch(cluster, 0)
    cluster.moments_left = moment
    try:
        start().process(planned)
    except DiedError:
        assert cluster.committed_rows in ([], ["row 0"])
    cluster.moments_left = 10**9
    before = list(cluster.committed_rows)
    sleep_a_week(cluster)
    with pytest.raises(FailClosedError, match="missing-marker"):
        start(marker_partition=MARKERS).process(planned)
    assert cluster.committed_rows == before


def test_a_query_that_is_opened_before_spark_planned_anything_may_rest_as_long_as_it_likes(
    cluster: Coordinator, start: Start
) -> None:
    start(marker_partition=MARKERS).prepare("q")
    assert opened(cluster) == "q"
    planned = Batch(cluster, 0)
    sleep_a_week(cluster)
    start(marker_partition=MARKERS).process(planned)
    assert cluster.committed_rows == ["row 0"]
    marker = Marker.decode(cluster.records[MARKERS, b"app"].decode())
    assert marker is not None
    assert marker.sequence == 1


def test_an_opening_says_nothing_of_another_query(cluster: Coordinator, start: Start) -> None:
    old = Batch(cluster, 0, query_id="old")
    start().process(old)
    sleep_a_week(cluster)
    start(marker_partition=MARKERS).prepare("new")
    with pytest.raises(FailClosedError, match="missing-marker"):
        start(marker_partition=MARKERS).process(old)
    start(marker_partition=MARKERS).process(Batch(cluster, 0, query_id="newer"))
    assert len(cluster.committed_rows) == 2


def test_an_opening_never_takes_the_place_of_a_marker(cluster: Coordinator, start: Start) -> None:
    start(marker_partition=MARKERS).process(Batch(cluster, 0))
    before = dict(cluster.records)
    start(marker_partition=MARKERS).prepare("other")
    assert cluster.records == before
    with pytest.raises(FailClosedError, match="other-query"):
        start(marker_partition=MARKERS).process(Batch(cluster, 0, query_id="other"))


def test_an_opening_is_no_marker_of_later_batches(cluster: Coordinator, start: Start) -> None:
    start(marker_partition=MARKERS).prepare("q")
    with pytest.raises(FailClosedError, match="missing-marker"):
        start(marker_partition=MARKERS).process(Batch(cluster, 3))


def test_an_application_is_opened_once(cluster: Coordinator, start: Start) -> None:
    start(marker_partition=MARKERS).prepare("q")
    ends = cluster.log.count("end")
    driver = start(marker_partition=MARKERS)
    driver.prepare("q")
    driver.process(Batch(cluster, 0))
    assert cluster.log.count("end") == ends + 1


def test_a_person_who_looked_at_the_output_need_say_so_once_only(
    cluster: Coordinator, start: Start
) -> None:
    planned = Batch(cluster, 0)
    sleep_a_week(cluster)
    cluster.moments_left = 4
    with pytest.raises(DiedError):
        start(marker_partition=MARKERS, accept=frozenset({"missing-marker"})).process(planned)
    cluster.moments_left = 10**9
    assert cluster.committed_rows == []
    sleep_a_week(cluster)
    start(marker_partition=MARKERS).process(planned)
    assert cluster.committed_rows == ["row 0"]


@pytest.mark.parametrize("when", ["before append", "before end", "after end"])
def test_an_opening_in_doubt_costs_an_attempt_and_no_record(
    cluster: Coordinator, start: Start, when: str
) -> None:
    start({when: ConnectionLostError("no answer")}, marker_partition=MARKERS).process(
        Batch(cluster, 0)
    )
    assert cluster.committed_rows == ["row 0"]


def test_an_opening_that_fails_at_the_start_is_raised_and_the_next_batch_opens_again(
    cluster: Coordinator, start: Start
) -> None:
    refused = FatalError(ErrorCode.topic_authorization_failed, "markers")
    driver = start({"before append": refused}, marker_partition=MARKERS)
    with pytest.raises(FatalError):
        driver.prepare("q")
    driver.process(Batch(cluster, 0))
    assert cluster.committed_rows == ["row 0"]


def test_where_no_group_holds_markers_there_is_no_opening_and_no_age(
    cluster: Coordinator, start: Start
) -> None:
    planned = Batch(cluster, 0)
    sleep_a_week(cluster)
    driver = start(marker_partition=MARKERS, has_group_markers=False)
    driver.prepare("q")
    assert cluster.records == {}
    driver.process(planned)
    assert cluster.log.count("end") == 1


def test_a_start_does_not_wait_for_the_rows_of_a_batch_that_was_quicker(
    cluster: Coordinator, start: Start
) -> None:
    """A source without a process of its own plans its first batch before `start()` gets there."""
    driver = start(marker_partition=MARKERS)
    has_returned: list[bool] = []

    class Slow(Batch):
        def write(self, identity: ProducerIdentity) -> list[TaskReport]:
            starting_thread = threading.Thread(target=driver.prepare, args=("q",), daemon=True)
            starting_thread.start()
            starting_thread.join(JOIN_TIMEOUT_S)
            has_returned.append(not starting_thread.is_alive())
            return super().write(identity)

    driver.process(Slow(cluster, 0))
    assert has_returned == [True]
    assert cluster.committed_rows == ["row 0"]
    assert cluster.log.count("open") == 1
