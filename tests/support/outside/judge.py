"""What is to be said of the verdicts of two peers on the same tests."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tests.support.outside.suites import Verdicts

__all__ = ["EXPECTED", "NOT_RUN", "Difference", "Expected", "counted", "differences"]

NOT_RUN: Final = "not run"


@dataclass(frozen=True)
class Expected:
    """Tests whose verdict differs, and why; docs/compatibility.md says the same."""

    pattern: str
    reason: str
    ours: str = ""
    """Our verdict, where another one is not expected."""


EXPECTED: Final[Mapping[str, Sequence[Expected]]] = {
    "librdkafka": (
        Expected(r"0\d+_share_consumer", "no share groups (KIP-932)"),
        Expected(r"01(35|42)_\w+/do_test_share", "no share groups (KIP-932)"),
        Expected(r"0142_", "not every login anew comes in time on a loaded machine", "passed"),
        Expected(r"0097_ssl_verify$", "it knows the numbers of Java's alerts alone"),
        Expected(
            r"0081_admin/do_test_(Incremental)?AlterConfigs", "no Kerberos, whose key it sets"
        ),
    ),
    "franz-go": (
        Expected(r"TestShareGroup|TestConsumeRegexShare", "no share groups (KIP-932)"),
        Expected(r"Test848RegexBrokerResolves", "an internal topic may be the second it sees"),
    ),
}


@dataclass(frozen=True)
class Difference:
    """A test that the peers do not judge alike; `reason` is empty for one that nobody expects."""

    test: str
    ours: str
    kafkas: str
    reason: str


def differences(suite: str, ours: Verdicts, kafkas: Verdicts) -> list[Difference]:
    """The tests whose verdicts are not the same, in their order."""
    found = []
    for test in sorted(ours.keys() | kafkas.keys()):
        pair = ours.get(test, NOT_RUN), kafkas.get(test, NOT_RUN)
        if pair[0] != pair[1]:
            name = test.rpartition(" ")[2]  # without its scenario
            reasons = [
                each.reason
                for each in EXPECTED[suite]
                if re.match(each.pattern, name) and each.ours in ("", pair[0])
            ]
            found.append(Difference(test, *pair, "".join(reasons[:1])))
    return found


def counted(verdicts: Verdicts) -> str:
    """How many of each verdict."""
    counts = Counter(verdicts.values())
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
