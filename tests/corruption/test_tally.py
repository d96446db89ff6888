"""What a campaign of mutated files keeps while it goes on, and of its mutations when it ends."""

from collections.abc import Iterator

from rich.console import Console

from tests.corruption.campaign import SHARE, WRITE_EVERY_COUNT, Result, Tally, carry_out
from tests.support.evidence import Entry

SILENT = Console(quiet=True)


def shares(count: int, *, broken: int | None = None) -> Iterator[list[Result]]:
    for first in range(0, count, SHARE):
        yield [
            Result(number, "a.log", "cut", "right", ["a rule"] if number == broken else [])
            for number in range(first, first + SHARE)
        ]


def interrupted(whole: Iterator[list[Result]]) -> Iterator[list[Result]]:
    yield from whole
    raise KeyboardInterrupt


def test_evidence_is_written_as_a_campaign_goes_and_at_its_end() -> None:
    kept: list[Entry] = []
    count = 2 * WRITE_EVERY_COUNT + SHARE
    tally = Tally(3, "commit")
    assert carry_out(shares(count), tally, SILENT, count, kept.append)
    assert [entry["mutated files"] for entry in kept] == [
        WRITE_EVERY_COUNT,
        2 * WRITE_EVERY_COUNT,
        count,
    ]
    assert kept[-1]["seeds"] == [3, 3]
    assert kept[-1]["outcomes"] == {"right": count}
    assert kept[-1]["verdict"] == "passed"


def test_an_interrupted_campaign_keeps_what_it_has_judged() -> None:
    kept: list[Entry] = []
    tally = Tally(3, "commit")
    assert not carry_out(interrupted(shares(2 * SHARE)), tally, SILENT, 10**6, kept.append)
    assert [entry["mutated files"] for entry in kept] == [2 * SHARE]


def test_one_broken_rule_makes_the_verdict_and_is_named() -> None:
    kept: list[Entry] = []
    carry_out(shares(2 * SHARE, broken=7), Tally(3, "commit"), SILENT, 2 * SHARE, kept.append)
    assert kept[-1]["verdict"] == "failed"
    assert kept[-1]["broken rules"] == ["7 a.log cut: ['a rule']"]
