import pytest

from oncelog.simulation.known import KnownDefect, RunFacts, known_as, known_defects

FACTS = RunFacts(frozenset({"kill", "power-loss-at-operation"}), flushed=False)


def defect(**changes: object) -> KnownDefect:
    values = {
        "name": "n",
        "kind": "lost-*",
        "detail": "*tail*",
        "needs": ("kill", "power-loss|power-loss-at-operation"),
        "flushed": False,
        "issue": 8,
        "plan": "p.json",
    }
    return KnownDefect(**{**values, **changes})  # type: ignore[arg-type]


def test_a_finding_that_fits_is_known() -> None:
    assert known_as("lost-write", "the tail is gone", FACTS, [defect()]) == defect()


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "duplicate"},
        {"detail": "*head*"},
        {"needs": ("flip-bit",)},
        {"needs": ("kill", "flip-bit|disk-full")},
        {"flushed": True},
    ],
)
def test_a_finding_that_does_not_fit_is_unknown(changes: dict[str, object]) -> None:
    assert known_as("lost-write", "the tail is gone", FACTS, [defect(**changes)]) is None


def test_the_list_that_is_shipped_names_open_issues() -> None:
    assert {entry.issue for entry in known_defects()} <= set(range(8, 15))
