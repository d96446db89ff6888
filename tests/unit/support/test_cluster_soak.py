"""The soak of a cluster: what is lost, repeated or late does not pass, nor what logs say."""

from itertools import islice
from pathlib import Path

import pytest

from tests.support.checker import History, Seen, Value
from tests.support.cluster_faults import KILL, ON_BOTH, ON_ZOOKEEPER, PAUSE_LONG, Struck, draw
from tests.support.cluster_load import Acknowledged, longest_gap_s, merged
from tests.support.cluster_soak import Report, judge, judge_gaps, said_in
from tests.support.cpu_wait import CpuWait

SENT = [Value("a", number) for number in range(3)]
WHOLE = [Seen(0, value.number, value) for value in SENT]


def history() -> History:
    made = History()
    for value in SENT:
        made.send(value, 0)
        made.ack(value, value.number)
    return made


def test_what_every_replica_and_reader_has_once_and_in_order_passes() -> None:
    assert judge(history(), {"a reader": WHOLE}, {"one": WHOLE, "two": WHOLE}) == []


@pytest.mark.parametrize(
    ("held", "kind"),
    [
        (WHOLE[:2], "lost"),
        ([*WHOLE, Seen(0, 3, SENT[2])], "duplicate"),
        ([WHOLE[0], Seen(0, 1, SENT[2]), Seen(0, 2, SENT[1])], "reordered"),
        ([*WHOLE, Seen(0, 3, Value("b", 0))], "never sent"),
    ],
)
@pytest.mark.parametrize("by_reader", [True, False])
def test_a_loss_a_repetition_or_another_order_is_found(
    held: list[Seen], kind: str, by_reader: bool
) -> None:
    seen = {"it": held} if by_reader else {}
    replicas = {"one": WHOLE} if by_reader else {"one": WHOLE, "it": held}
    assert any(each.startswith(f"it: {kind}:") for each in judge(history(), seen, replicas))


def test_replicas_that_differ_are_found() -> None:
    more = [*WHOLE, Seen(0, 3, Value("a", 3))]
    sent = history()
    sent.send(Value("a", 3), 0)
    (finding,) = judge(sent, {}, {"one": WHOLE, "two": more})
    assert finding.startswith("two differs from one")


def test_histories_of_several_producers_are_judged_as_one() -> None:
    other = History()
    other.send(Value("b", 0), 1)
    assert merged([history(), other]).sent.keys() == {("a", 0), ("a", 1), ("a", 2), ("b", 0)}


@pytest.mark.parametrize(
    ("times", "gap"),
    [([9.0, 10.5, 12.0, 14.5], 2.5), ([9.0, 14.0], 5.0), ([9.0], 6.0), ([], 5.0)],
)
def test_the_longest_gap_begins_before_the_fault_and_ends_with_the_stretch(
    times: list[float], gap: float
) -> None:
    acknowledged = [Acknowledged(at_s, 0) for at_s in times] + [Acknowledged(11.0, 1)]
    assert longest_gap_s(acknowledged, 0, 10.0, 15.0) == gap


def test_only_the_death_of_a_leader_has_a_bound() -> None:
    late = {"librdkafka": [Acknowledged(10.0, 0), Acknowledged(14.0, 0)]}
    for kind, count in ((KILL, 1), (PAUSE_LONG, 0)):
        report = Report([Struck(kind, (1,), (0,), 10.0, whole_s=15.0)])
        judge_gaps(report, late, 3.0)
        assert report.struck[0].gap_s == 4.0
        assert len(report.findings) == count


def test_what_waited_for_a_processor_is_no_cost_of_a_death() -> None:
    late = {"librdkafka": [Acknowledged(10.0, 0), Acknowledged(14.0, 0)]}
    for wait_s, count in ((0.9, 1), (1.1, 0)):
        report = Report([Struck(KILL, (1,), (0,), 10.0, whole_s=15.0, cpu_wait_s=wait_s)])
        judge_gaps(report, late, 3.0)
        assert len(report.findings) == count


def test_a_process_counts_with_the_thread_that_waited_longest(tmp_path: Path) -> None:
    for pid, thread, waited_ns in ((7, 7, 10**9), (7, 8, 3 * 10**9), (9, 9, 0)):
        (tmp_path / f"{pid}/task/{thread}").mkdir(parents=True)
        (tmp_path / f"{pid}/task/{thread}/schedstat").write_text(f"5 {waited_ns} 1\n")
    wait = CpuWait([7], tmp_path)
    (tmp_path / "7/task/8/schedstat").write_text(f"5 {5 * 10**9} 1\n")
    (tmp_path / "9/task/9/schedstat").write_text(f"5 {10**9} 1\n")
    assert wait.so_far_s([7]) == 2.0
    assert wait.so_far_s([7, 9, 11]) == 3.0
    (tmp_path / "7/task/8/schedstat").unlink()
    assert wait.so_far_s([7, 9]) == 1.0


def test_unclean_elections_and_errors_in_a_log_are_findings(tmp_path: Path) -> None:
    path = tmp_path / "broker-1.log"
    path.write_text(
        "2026 INFO a: registering as unclean: killed\n"
        "2026 WARNING b: unclean election in 1 partitions\n"
        "2026 ERROR oncelog.broker.membership.store_health: no metadata\n"
        "2026 ERROR c: damaged\nTraceback (most recent call last):\n"
    )
    assert [each.partition(": ")[2][:12] for each in said_in([path])] == [
        "2026 WARNING",
        "2026 ERROR c",
        "Traceback (m",
    ]


def test_each_kind_comes_once_before_any_comes_again() -> None:
    kinds = sorted((*ON_BOTH, *ON_ZOOKEEPER))
    drawn = list(islice(draw(7, True, 2.0, 3), 2 * len(kinds)))
    assert sorted(each.kind for each in drawn[: len(kinds)]) == kinds
    assert drawn == list(islice(draw(7, True, 2.0, 3), 2 * len(kinds)))
