"""Three real brokers under load and faults: `make soak` is the long form.

Topics have three replicas and min.insync.replicas=2; producers are idempotent, with acks=all.
Nothing acknowledged is lost, nothing is there twice, order is kept, and no election is unclean, in
the files of each replica as well as for consumers of librdkafka and of the Java client.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cluster_faults import CUT_BROKERS, KILL, KILL_ALL, PAUSE_LONG, Fault
from tests.support.cluster_soak import SQLITE, Report, run

pytestmark = [pytest.mark.slow, pytest.mark.interop, pytest.mark.alone, pytest.mark.timeout(180)]

SESSION_MS = 1_000


def check(report: Report, kinds: list[str]) -> None:
    assert not report.findings, report.findings[:5]
    assert [each.kind for each in report.struck] == kinds
    assert all(number > 100 for what, number in report.counts.items() if what != "faults")


def test_nothing_is_lost_through_faults_of_brokers_on_sqlite(tmp_path: Path) -> None:
    faults = [
        Fault(KILL, 0, 0.2, 0.1),
        Fault(PAUSE_LONG, 1, 1.5, 0.1),
        Fault(CUT_BROKERS, 2, 1.5, 0.1),
        Fault(KILL_ALL, 0, 0.0, 0.1),
    ]
    report = run(SQLITE, tmp_path, faults, session_ms=SESSION_MS, has_java=False)
    check(report, [KILL, PAUSE_LONG, CUT_BROKERS, KILL_ALL])
