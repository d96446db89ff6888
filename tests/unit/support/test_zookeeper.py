"""The ZooKeeper servers that tests start: data outlives a kill, and the leader can be moved."""

import pytest
from kazoo.client import KazooClient

from tests.support.zookeeper import ensemble, one_server


@pytest.mark.slow
def test_a_server_that_was_killed_comes_back_with_its_data() -> None:
    with one_server() as server:
        client = KazooClient(server.bootstrap_servers)
        client.start()
        client.create("/kept", b"1")
        server.restart()
        assert client.retry(client.get, "/kept")[0] == b"1"
        client.stop()
        client.close()


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
