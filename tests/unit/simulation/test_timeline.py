"""The page of a run."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from oncelog.core.ids import TopicPartition
from oncelog.simulation import history as h
from oncelog.simulation import history_access as a
from oncelog.simulation.history import Event, History, Value, Watermarks
from oncelog.simulation.timeline import write_timeline
from oncelog.simulation.timeline_events import KINDS
from oncelog.simulation.timeline_scale import MARK_GAP_PX, STEP_PX_MAX, TimeScale
from oncelog.simulation.timeline_spans import bands, spans
from tests.unit.simulation.sample import Found, Sample

VOID = frozenset({"meta", "input", "link", "br"})
OPTIONAL_END = frozenset({"th", "td", "tr"})
COMMAND = "oncelog simulate --seed 7"
T0 = TopicPartition("t", 0)


class WellFormed(HTMLParser):
    """Fails on an end tag that does not fit, and keeps what would come from outside."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.outside: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.outside += [f"{k}={v}" for k, v in attrs if k in ("src", "href") and v and v[0] != "#"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self.open[-1] != tag and self.open[-1] in OPTIONAL_END:
            self.open.pop()
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def parsed(page: str) -> WellFormed:
    parser = WellFormed()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    return parser


def data_of(page: str) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert found is not None
    return json.loads(found[1])


def page_of(*events: Event, anomalies: tuple[Found, ...] = ()) -> str:
    made = History()
    for event in events:
        made.record(event)
    return write_timeline(made, None, anomalies, "Seed 7", COMMAND)


@pytest.fixture(scope="module")
def sample() -> Sample:
    made = Sample()
    made.make()
    return made


@pytest.fixture(scope="module")
def page(sample: Sample) -> str:
    return write_timeline(
        sample.history, sample.final(), sample.anomalies, "Seed 7 · mixed", COMMAND
    )


def test_the_page_is_well_formed_and_takes_nothing_from_outside(page: str) -> None:
    parser = parsed(page)
    assert parser.outside == []
    assert "url(" not in page.replace("url(#", "")
    assert "@import" not in page


def test_lanes_come_in_order_brokers_clients_partitions(page: str) -> None:
    names = [lane["name"] for lane in data_of(page)["lanes"]]
    clients = ["admin", "copier-1", "copier-2", "producer-1", "producer-2", "producer-10"]
    partitions = ["in-0", "in-1", "in-2", "out-0", "out-1"]
    assert names == ["faults", "broker-0", *clients, "reader-1", *partitions]


def test_a_finding_names_its_record_its_transaction_and_its_moment(
    page: str, sample: Sample
) -> None:
    data = data_of(page)
    index = next(i for i, found in enumerate(sample.anomalies) if found.kind == "aborted-read")
    finding = data["findings"][index]
    shown = [data["events"][i] for i in finding["events"]]
    names = [data["kinds"][event[2]]["name"] for event in shown]
    began = ["TransactionBegan", "Sent", "Acked"]
    assert names[:3] == began
    assert {"TransactionEnding", "TransactionEnded", "Polled"} <= set(names)
    assert len(shown) < 20, "and nothing else"
    at = data["events"][finding["at"]]
    assert data["kinds"][at[2]]["name"] == "Polled"
    assert finding["y"] == at[1]


def test_what_is_not_allowed_stands_first_in_the_table(page: str, sample: Sample) -> None:
    kinds = {str(i): found for i, found in enumerate(sample.anomalies)}
    rows = re.findall(r'<tr class="(\w+)" data-finding="(\d+)"', page)
    assert [style for style, _ in rows] == ["refused", "allowed"]
    assert [kinds[index].kind for _, index in rows] == ["aborted-read", "lost-write"]
    assert "allowed: power was lost at 2.1 s" in page


def test_an_acknowledged_record_tells_what_became_of_it(page: str) -> None:
    data = data_of(page)
    fates = {event[9] for event in data["events"] if event[9]}
    assert fates == {
        "at the end read_committed shows it",
        "at the end it is in the log and read_committed does not show it",
    }


def test_the_summary_counts_the_run(page: str, sample: Sample) -> None:
    text = " ".join(parsed(page).texts)
    assert f"{len(sample.history):,}" in text
    assert "power-loss ×" in text
    assert "__consumer_offsets-0: its leader is away" in text
    assert COMMAND in text


def test_text_from_a_run_cannot_become_markup() -> None:
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"
    found = Found(evil, evil, 1.0, evil, T0, 3, (Value(evil, 1),), evil)
    made = History()
    made.record(h.Logged(1.0, evil, evil, evil))
    made.record(h.Sent(2.0, evil, Value(evil, 1), TopicPartition(evil, 0)))
    page = write_timeline(made, None, [found], evil, evil)
    parser = parsed(page)
    assert parser.outside == []
    assert page.count("<script") == 2
    assert "<img" not in page
    assert data_of(page)["lanes"][1]["name"] == evil
    assert any(evil in text for text in parser.texts), "it is shown as it is"


def test_dollars_in_a_run_are_left_alone() -> None:
    page = page_of(h.Progress(1.0, "c$title", "$data"))
    assert data_of(page)["lanes"][1]["name"] == "c$title"
    assert data_of(page)["events"][0][7] == ["$data"]


def test_a_run_without_events_has_a_page() -> None:
    data = data_of(page_of())
    assert data["events"] == []
    assert parsed(page_of())


def test_each_class_of_event_is_drawn(sample: Sample) -> None:
    events = {
        cls
        for module in (h, a)
        for cls in vars(module).values()
        if isinstance(cls, type) and issubclass(cls, Event) and cls not in (Event, Watermarks)
    }
    assert events == set(KINDS)


def test_looks_at_watermarks_are_not_drawn() -> None:
    look = Watermarks(1.0, "broker-0", 0, T0, 0, 0, 0, 0, 0)
    assert data_of(page_of(look))["events"] == []


@pytest.mark.slow
def test_five_thousand_events_stay_below_three_megabytes() -> None:
    made = Sample(size=5_000)
    page = write_timeline(made.make(), made.final(), made.anomalies, "Seed 7", COMMAND)
    assert len(page.encode()) < 3_000_000


# --- the scale of time ---------------------------------------------------------------------


def test_marks_of_one_lane_never_touch_and_time_never_goes_up() -> None:
    moments = [(0.001 * (i // 5), [i % 2]) for i in range(200)]
    ys = TimeScale(moments).ys
    assert ys == sorted(ys)
    for lane in (0, 1):
        own = [y for y, (_, lanes) in zip(ys, moments, strict=True) if lane in lanes]
        assert all(b - a >= MARK_GAP_PX for a, b in pairwise(own))


def test_marks_of_other_lanes_at_one_moment_stand_side_by_side() -> None:
    assert len(set(TimeScale([(1.0, [0]), (1.0, [1]), (1.0, [2])]).ys)) == 1


def test_an_hour_of_idle_time_takes_little_room() -> None:
    scale = TimeScale([(0.0, [0]), (3600.0, [0]), (3600.5, [0])])
    assert scale.ys[1] - scale.ys[0] <= STEP_PX_MAX
    assert [round(seconds, 1) for _, _, seconds in scale.pauses] == [3600.0, 0.5]


def test_any_moment_has_a_height_between_its_neighbours() -> None:
    scale = TimeScale([(1.0, [0]), (1.0, [0]), (2.0, [0])], end_s=3.0)
    assert scale.y(0.0) < scale.top(1.0) < scale.y(1.0) < scale.y(1.5) < scale.y(2.0) < scale.y(3.0)
    assert scale.y(99.0) == scale.y(3.0) < scale.height
    assert TimeScale([]).y(1.0) == TimeScale([]).y(0.0)


def test_ticks_tell_moments_apart_and_say_each_once() -> None:
    moments = [(at_s, [0]) for at_s in (1.0, 1.00002, 1.00002, 2.0) for _ in range(6)]
    labels = [label for _, label in TimeScale(moments).ticks()]
    assert labels == ["0 s", "1.000 s", "1.000020", "2.000 s"]


# --- what lasts ----------------------------------------------------------------------------


def lasting(*events: Event) -> list[tuple[str, float, float, str]]:
    """(who, begin, end, tone) of each span; an end of 99 is the run's."""
    return sorted(
        (s.who, events[s.first].at_s, events[s.last].at_s if s.last >= 0 else 99.0, s.tone)
        for s in spans(events)
    )


def test_transactions_last_from_their_begin_to_their_outcome() -> None:
    found = lasting(
        h.TransactionBegan(1.0, "c", 0, "id"),
        h.TransactionEnding(2.0, "c", 0, True),
        h.TransactionEnded(3.0, "c", 0, True),
        h.TransactionBegan(4.0, "c", 1, "id"),
        h.TransactionUnknown(5.0, "c", 1, "x"),
        h.TransactionBegan(6.0, "c", 2, "id"),
        h.Fault(7.0, "", "kill-client", "c"),
        h.Fault(7.5, "", "kill-client", "d"),
        h.TransactionBegan(8.0, "c", 3, "id"),
    )
    assert found == [
        ("c", 1.0, 3.0, "commit"),
        ("c", 2.0, 3.0, "ending"),
        ("c", 4.0, 5.0, "unknown"),
        ("c", 6.0, 7.0, "open"),
        ("c", 8.0, 99.0, "open"),
    ]


def test_a_broker_is_alive_or_down_and_a_member_in_one_generation() -> None:
    found = lasting(
        h.BrokerStarted(0.0, "b", 0),
        h.Joined(1.0, "c", "g", "m", 1, "range", True),
        h.BrokerDied(2.0, "b", 0, "kill"),
        h.BrokerStarted(3.0, "b", 1),
        h.Joined(4.0, "c", "g", "m", 2, "range", True),
    )
    assert found == [
        ("b", 0.0, 2.0, "alive"),
        ("b", 2.0, 3.0, "dead"),
        ("b", 3.0, 99.0, "alive"),
        ("c", 1.0, 4.0, "odd"),
        ("c", 4.0, 99.0, "even"),
    ]


def test_a_fault_crosses_the_lanes_that_its_target_names_or_all() -> None:
    faults = [
        h.Fault(1.0, "", "partition", "c1|broker-0", "", 2.0),
        h.Fault(1.0, "", "flip-bit", "/data/t-0/00000000000000000000.log"),
        h.Fault(1.0, "", "drift", "everything"),
        h.Fault(1.0, "", "kill-client", "c2"),
    ]
    processes = ["broker-0", "c1", "c10", "c2.0", "c2.0.1", "c20.0"]
    found = bands(faults, processes, ["t-0", "t-00", "c2.0-0"])
    assert [band.lanes for band in found] == [
        ("broker-0", "c1"),
        ("t-0",),
        (),
        ("c2.0", "c2.0.1"),
    ]
    assert [(band.start_s, band.end_s) for band in found[:2]] == [(1.0, 2.0), (1.0, 1.0)]


def test_a_record_without_a_partition_makes_no_lane() -> None:
    page = page_of(h.Sent(1.0, "c", Value("c", 1), TopicPartition("t", -1)))
    data = data_of(page)
    assert [lane["name"] for lane in data["lanes"]] == ["faults", "c"]
    assert data["events"][0][4] == ["#1 t"]


# --- the script ----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("node") is None, reason="no JavaScript engine is here")
def test_the_script_draws_every_event_and_goes_to_a_finding(page: str, tmp_path: Path) -> None:
    path = tmp_path / "run.html"
    path.write_text(page)
    runner = Path(__file__).with_name("run_page.js")
    run = subprocess.run(
        ["node", str(runner), str(path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert run.returncode == 0, run.stderr
    told, data = json.loads(run.stdout), data_of(page)
    assert 0 < told["first"] < len(data["events"]), "only what is in view is drawn"
    assert told["seen"] == len(data["events"])
    assert told["hot"] > 0
    assert told["dimmed"] > 0
    assert told["tip"][0] == "Polled"
    (chosen,) = re.findall(r'class="refused" data-finding="(\d+)"', page)
    assert abs(told["chosen"] + 450 - data["findings"][int(chosen)]["y"]) < 1
    assert told["without"] == told["lanes"] - 1
    assert re.fullmatch(r"1 of \d+", told["found"])
