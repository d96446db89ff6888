"""A run of each kind finds nothing new, and runs that once found something are kept."""

from dataclasses import replace
from pathlib import Path

import pytest

from oncelog.simulation.campaign import RunFinding, judge_run
from oncelog.simulation.draw import draw_plan
from oncelog.simulation.faults import PROFILES
from oncelog.simulation.history import Assigned, BrokerDied, Fault, Polled
from oncelog.simulation.known import known_defects
from oncelog.simulation.plan import from_json
from oncelog.simulation.roles import ROLES
from oncelog.simulation.run import execute

FOUND = Path(__file__).parent / "found"
LONG = frozenset(
    {
        "epoch_underway_when_power_was_lost",
        "hole_after_damage",
        "reader_held_by_a_lost_transaction",
        "torn_where_power_left_an_abort",
    }
)
"""Each takes seconds of CPU."""
OURS = frozenset({"member", "member-copy"})
SHOWN_BY = {defect.plan: defect.name for defect in known_defects()}


def findings(path: Path) -> tuple[RunFinding, ...]:
    return judge_run(execute(from_json(path.read_text()), ROLES))


@pytest.mark.parametrize("profile", PROFILES)
def test_a_run_of_each_kind_finds_nothing_new(profile: str) -> None:
    plan = draw_plan(11, profile)
    if profile != "calm":
        # They depend on the seed alone: each profile would have the same ones.
        plan = replace(plan, components=())
    result = execute(plan, ROLES)
    again = f"oncelog simulate --seed 11 --profile {profile}"
    assert not [finding for finding in judge_run(result) if not finding.known_as], again
    assert len(result.history) > 50


@pytest.mark.parametrize(("seed", "profile"), [(37, "processes"), (19, "crash-points")])
def test_a_run_with_members_under_kip_848_finds_nothing_new(seed: int, profile: str) -> None:
    result = execute(draw_plan(seed, profile, brokers=1), ROLES)
    again = f"oncelog simulate --seed {seed} --profile {profile} --brokers 1"
    assert not [finding for finding in judge_run(result) if not finding.known_as], again
    assert result.coverage.counts["consumer-group/Stable"] > 1
    assert result.coverage.counts["member/UNREVOKED_PARTITIONS"] > 0


@pytest.mark.parametrize(("seed", "protocol"), [(62, "classic"), (6, "consumer")])
def test_a_run_with_our_consumer_in_a_group_finds_nothing_new(seed: int, protocol: str) -> None:
    plan = draw_plan(seed)
    (found,) = {c.parameters["protocol"] for c in plan.clients if c.role in OURS}
    assert found == protocol
    result = execute(plan, ROLES)
    assert not [finding for finding in judge_run(result) if not finding.known_as], seed
    ours = {c.id for c in plan.clients if c.role in OURS}
    assert {event.who.partition(".")[0] for event in result.history.of(Assigned)} >= ours
    assert any(poll.who.partition(".")[0] in ours for poll in result.history.of(Polled))


def test_power_is_lost_when_a_reader_was_handed_records_that_are_not_synced() -> None:
    result = execute(draw_plan(3_000_020, "power"), ROLES)
    again = "oncelog simulate --seed 3000020 --profile power"
    assert not [finding for finding in judge_run(result) if not finding.known_as], again
    (struck,) = (f for f in result.history.of(Fault) if f.kind == "power-loss-at-read")
    assert [d.cause for d in result.history.of(BrokerDied) if d.at_s == struck.at_s] == ["power"]
    read = [p for p in result.history.of(Polled) if p.at_s == struck.at_s]
    (reader,) = {poll.who for poll in read}
    assert struck.target == "broker-0"
    later = [p.at_s for p in result.history.of(Polled) if p.who == reader and p.at_s > struck.at_s]
    assert min(later) >= struck.until_s


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=[pytest.mark.soak] if path.stem in LONG else [])
        for path in sorted(FOUND.glob("*.json"))
    ],
)
def test_what_was_found_once_is_mended_or_known(path: Path) -> None:
    found = findings(path)
    again = f"oncelog simulate --plan {path}"
    assert not [finding for finding in found if not finding.known_as], again
    if path.name in SHOWN_BY:
        # The issue that mends it deletes the entry; the plan stays.
        assert found, f"{path.name} shows {SHOWN_BY[path.name]} no longer: delete the entry"


def test_every_known_defect_has_a_plan_that_shows_it() -> None:
    assert all((FOUND / name).exists() for name in SHOWN_BY)
