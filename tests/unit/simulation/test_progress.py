"""The display of a campaign, on a terminal and elsewhere."""

from __future__ import annotations

import io
from dataclasses import dataclass

from rich.console import Console

from oncelog.simulation.coverage import Coverage
from oncelog.simulation.progress import LINE_EVERY_S, SIGNATURES_SHOWN_COUNT, Display


@dataclass(frozen=True)
class Found:
    signature: str
    detail: str = "an example"
    known_as: str = ""


@dataclass(frozen=True)
class Run:
    seed: int
    findings: tuple[Found, ...] = ()
    profile: str = "mixed"
    simulated_s: float = 30.0
    coverage: str = "{}"

    @property
    def failed(self) -> bool:
        return any(not found.known_as for found in self.findings)


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Plain:
    def __init__(self, run_count: int = 10) -> None:
        self.clock = Clock()
        self.out = io.StringIO()
        self.display = Display(run_count, out=self.out, now_s=self.clock)

    @property
    def lines(self) -> list[str]:
        return self.out.getvalue().splitlines()


def picture(*runs: Run) -> str:
    clock = Clock()
    console = Console(file=io.StringIO(), width=140, color_system=None)
    display = Display(10, console=console, now_s=clock)
    clock.now_s += 2.0
    for run in runs:
        display.update(run)
    with console.capture() as captured:
        console.print(display.picture())
    return captured.get()


def test_without_a_terminal_the_count_is_said_now_and_then_and_at_the_end() -> None:
    plain = Plain()
    with plain.display:
        plain.clock.now_s += 1.0
        plain.display.update(Run(1))
        assert plain.lines == []
        plain.clock.now_s += LINE_EVERY_S
        plain.display.update(Run(2))
        plain.display.update(Run(3))
    first, last = plain.lines
    assert first.startswith("2 of 10 runs, 11 a minute, 0 failed")
    assert last.startswith("3 of 10 runs, 16 a minute")
    assert last.endswith("last seed 3")


def test_without_a_terminal_a_new_signature_is_said_once_and_at_once() -> None:
    plain = Plain()
    with plain.display:
        plain.display.update(Run(7, (Found("lost-write", "in-0@4"),)))
        plain.display.update(Run(8, (Found("lost-write"), Found("torn", known_as="index"))))
    assert plain.lines[0] == "found lost-write with seed 7: in-0@4"
    assert len(plain.lines) == 2
    assert "2 failed, signatures: 1 unknown, 1 known" in plain.lines[1]


def test_the_picture_shows_progress_rate_findings_and_seeds() -> None:
    shown = picture(
        Run(7, (Found("lost-write", "in-0@4"),)),
        Run(8, (Found("torn", known_as="index"), Found("lost-write"))),
        Run(9),
    )
    assert "3/10 runs" in shown
    assert "1.50/s" in shown
    assert "45 times real time" in shown
    assert "0:00:02 passed, 0:00:04 left" in shown
    rows = [line.split() for line in shown.splitlines()]
    assert ["lost-write", "2", "7", "in-0@4"] in rows
    assert ["torn", "(known:", "index)", "1", "8", "an", "example"] in rows
    assert rows.index(["lost-write", "2", "7", "in-0@4"]) < rows.index(
        ["torn", "(known:", "index)", "1", "8", "an", "example"]
    )
    assert "last seeds  9 mixed 8 mixed failed 7 mixed failed" in shown


def test_many_signatures_are_cut() -> None:
    found = tuple(Found(f"kind-{index:02}") for index in range(SIGNATURES_SHOWN_COUNT + 3))
    shown = picture(Run(1, found))
    assert "and 3 more" in shown
    assert f"kind-{SIGNATURES_SHOWN_COUNT:02}" not in shown


def test_coverage_of_all_runs_is_added_up() -> None:
    half = Coverage()
    half.count("group/Stable", 10)
    shown = picture(Run(1, coverage=half.to_json()), Run(2, coverage=half.to_json()))
    (line,) = [line for line in shown.splitlines() if line.startswith("group")]
    _, count = Coverage().reached("group")
    assert f" 1/{count} " in line
    assert "missing Empty" in line


def test_on_a_terminal_the_last_picture_stays() -> None:
    console = Console(file=io.StringIO(), width=140, color_system=None, force_terminal=True)
    with Display(1, console=console) as display:
        display.update(Run(5))
    assert isinstance(console.file, io.StringIO)
    assert "1/1 runs" in console.file.getvalue()


def test_a_picture_before_the_first_run_divides_by_nothing() -> None:
    assert "0/10 runs" in picture()
