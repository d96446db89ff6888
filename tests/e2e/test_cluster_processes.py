"""Three real brokers under load and faults: `make soak` is the long form.

Topics have three replicas and min.insync.replicas=2; producers are idempotent, with acks=all.
Nothing acknowledged is lost, nothing is there twice, order is kept, and no election is unclean, in
the files of each replica as well as for consumers of librdkafka and of the Java client.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cluster_faults import (
    CUT_BROKERS,
    CUT_STORE,
    KILL,
    KILL_ALL,
    PAUSE_LONG,
    ZK_KILL,
    Fault,
)
from tests.support.cluster_soak import SQLITE, ZOOKEEPER, run
from tests.support.peer.kafka import PeerUnavailable, jars
from tests.support.zookeeper import fetched, shared_server

pytestmark = [pytest.mark.slow, pytest.mark.interop, pytest.mark.alone, pytest.mark.timeout(180)]

SESSION_MS = 800


def check(folder: Path, store: str, faults: list[Fault], *, has_java: bool = False) -> None:
    zookeeper = shared_server() if store == ZOOKEEPER else None
    options = {"session_ms": SESSION_MS, "has_java": has_java, "zookeeper": zookeeper}
    report = run(store, folder, faults, **options)  # type: ignore[arg-type]
    assert not report.findings, report.findings[:5]
    assert all(number > 100 for what, number in report.counts.items() if what != "faults")


@pytest.mark.soak
def test_nothing_is_lost_through_faults_of_brokers_on_sqlite(tmp_path: Path) -> None:
    faults = [
        Fault(KILL, 0, 0.2, 0.1),
        Fault(PAUSE_LONG, 1, 1.2, 0.1),
        Fault(CUT_BROKERS, 2, 0.8, 0.1),
        Fault(KILL_ALL, 0, 0.0, 0.1),
    ]
    check(tmp_path, SQLITE, faults)


def test_nothing_is_lost_through_faults_on_zookeeper(tmp_path: Path) -> None:
    fetched()
    try:
        jars()
    except PeerUnavailable as reason:
        pytest.skip(f"the Java client cannot be had: {reason}")
    faults = [
        Fault(KILL, 0, 0.2, 0.1),
        Fault(CUT_STORE, 1, 1.2, 0.1),
        Fault(ZK_KILL, 0, 0.1, 0.1),
        Fault(KILL_ALL, 0, 0.0, 0.1),
    ]
    check(tmp_path, ZOOKEEPER, faults, has_java=True)
