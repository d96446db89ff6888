"""What a connection takes for connected, without a server."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.metadata.store import StoreFailure
from oncelog.metadata.zookeeper.connection import ZooKeeperConnection
from oncelog.metadata.zookeeper.nodes import parse_servers


class Kazoo:
    connected = True


@pytest.mark.parametrize(
    ("known", "held", "is_connected"), [("b", "b", True), ("a", "b", False), ("", "", False)]
)
async def test_a_session_that_the_loop_does_not_know_yet_is_waited_for(
    known: str, held: str, is_connected: bool
) -> None:
    """What is asked for an earlier session would go out in the next one."""
    connection = ZooKeeperConnection(parse_servers("127.0.0.1:1"), 1000, lambda: None)
    client: Any = Kazoo()
    connection._client = client
    connection.session_id, connection._kazoo_session_id = known, held
    if is_connected:
        await connection._until_connected(0)
    else:
        with pytest.raises(StoreFailure, match="does not answer"):
            await connection._until_connected(0)
