"""The leader of the ZooKeeper servers that tests start can be moved.

That data outlives a restart is seen in tests/unit/metadata/zookeeper/test_faults.py.
"""

import pytest

from tests.support.zookeeper import ensemble


@pytest.mark.soak
def test_a_leader_that_was_killed_follows_another() -> None:
    with ensemble() as servers:
        old = servers.leader()
        new = servers.move_leader()
        assert new is not old
        assert sorted(filter(None, (one.mode() for one in servers.servers))) == [
            "follower",
            "follower",
            "leader",
        ]
