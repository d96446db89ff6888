"""Apache's TransactionalMessageCopier on three brokers, each of which is killed in turn."""

from pathlib import Path

import pytest

from tests.support.copy_soak import JAVA, run
from tests.support.peer import PeerUnavailable, jars

pytestmark = [pytest.mark.interop, pytest.mark.soak, pytest.mark.timeout(900)]

RECORDS = 60_000
KILL_EVERY_S = (1.0, 4.0)
"""So often that a fast machine still copies when the third broker dies."""


def test_each_record_is_copied_once_though_three_brokers_are_killed(tmp_path: Path) -> None:
    try:
        jars()
    except PeerUnavailable as reason:
        pytest.skip(f"TransactionalMessageCopier cannot be had: {reason}")
    kills, counts, findings = run(
        [JAVA],
        RECORDS,
        7,
        tmp_path,
        lambda _said: None,
        brokers_count=3,
        spares_clients=True,
        kill_every_s=KILL_EVERY_S,
    )
    assert findings == []
    # Otherwise no broker was killed while it copied, and the run has shown nothing.
    assert kills >= 3
    assert counts[JAVA]["transactions"] > 0
