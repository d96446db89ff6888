"""`oncelog features` against a broker in this process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from click.testing import Result

Oncelog = Callable[..., Result]
FEATURE = "transaction.version"


@pytest.fixture(autouse=True)
def _back(oncelog: Oncelog) -> Iterator[None]:
    """The cluster may be shared: leave it at the newest level."""
    yield
    if levels(oncelog)[FEATURE]["finalized"] != 2:
        assert oncelog("features", "upgrade", "--feature", f"{FEATURE}=2").exit_code == 0


def rows(result: Result) -> list[dict[str, object]]:
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def levels(oncelog: Oncelog, *options: str) -> dict[str, dict[str, object]]:
    found = rows(oncelog("features", "describe", "--json", *options))
    return {str(row["feature"]): row for row in found}


def test_features_are_described_with_what_is_supported_and_finalized(oncelog: Oncelog) -> None:
    (broker,) = rows(oncelog("brokers", "list", "--json"))
    described = levels(oncelog)[FEATURE]
    assert {**described, "epoch": 0} == {
        "feature": FEATURE,
        "min_supported": 0,
        "max_supported": 2,
        "finalized": 2,
        "epoch": 0,
    }
    assert isinstance(described["epoch"], int)
    assert levels(oncelog, "--node-id", str(broker["broker"]))[FEATURE] == described


def test_a_level_goes_down_and_up_again_under_new_epochs(oncelog: Oncelog) -> None:
    before = levels(oncelog)[FEATURE]
    (row,) = rows(oncelog("features", "downgrade", "--feature", f"{FEATURE}=1", "--json"))
    assert row == {"feature": FEATURE, "before": 2, "level": 1, "state": "changed"}
    assert levels(oncelog)[FEATURE]["finalized"] == 1
    result = oncelog("features", "upgrade", "--feature", f"{FEATURE}=2")
    assert result.stdout == f"{FEATURE}\t1\t2\tchanged\n"
    after = levels(oncelog)[FEATURE]
    assert after["finalized"] == 2
    assert int(str(after["epoch"])) > int(str(before["epoch"]))


def test_a_dry_run_changes_nothing(oncelog: Oncelog) -> None:
    before = levels(oncelog)
    change = ("features", "downgrade", "--feature", f"{FEATURE}=0", "--dry-run", "--json")
    (row,) = rows(oncelog(*change))
    assert row["state"] == "can be changed"
    assert levels(oncelog) == before


def test_all_features_of_an_update_are_changed_or_none(oncelog: Oncelog) -> None:
    before = levels(oncelog)
    both = ("--feature", f"{FEATURE}=1", "--feature", "group.version=9")
    result = oncelog("features", "downgrade", *both)
    assert result.exit_code == 1
    assert levels(oncelog) == before


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("upgrade", "--feature", f"{FEATURE}=9"), 1, "INVALID_UPDATE_VERSION"),
        (("upgrade", "--feature", f"{FEATURE}=1"), 1, "INVALID_UPDATE_VERSION"),
        (("upgrade", "--feature", "no.such.feature=1"), 1, "INVALID_UPDATE_VERSION"),
        (("upgrade",), 2, "--feature"),
        (("upgrade", "--feature", FEATURE), 2, "is not KEY=VALUE"),
        (("upgrade", "--feature", f"{FEATURE}=two"), 2, "is no number from 0 to 32767"),
        (("upgrade", "--feature", f"{FEATURE}=32768"), 2, "is no number from 0 to 32767"),
        (("upgrade", "--feature", f"{FEATURE}={'9' * 9999}"), 2, "is no number from 0 to 32767"),
        (("downgrade", "--feature", "a=1", "--feature", "a=2"), 2, "named twice"),
        (("describe", "--node-id", "77"), 1, "there is no broker 77"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    oncelog: Oncelog, arguments: tuple[str, ...], code: int, text: str
) -> None:
    result = oncelog("features", *arguments)
    assert result.exit_code == code
    (line,) = result.stderr.splitlines()
    assert text in line
