"""What only brokers may ask, asked by one that the authorizer of another does not know."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from oncelog.broker.peers.connections import Peers, PeerUnreachable
from oncelog.core.config_keys import STANDARD_AUTHORIZER
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages.controller_event import ControllerEventRequest
from tests.unit.broker.context import running


async def test_a_broker_that_is_taken_for_a_client_says_what_to_do_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path, {"authorizer.class.name": STANDARD_AUTHORIZER}) as context:
        broker = context.broker
        rng = random.Random(1)
        peers = Peers(broker.peers, "broker-9", lambda: broker.image, 5000, broker.clock, rng)
        request = ControllerEventRequest(broker_id=9)
        for _ in range(2):
            with pytest.raises(PeerUnreachable, match="refuses what only brokers may ask"):
                await peers.ask(broker.broker_id, ApiKey.CONTROLLER_EVENT, 0, request)
        await peers.close()
    said = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert said == [
        f"broker {broker.broker_id} refuses what brokers ask of each other: it needs"
        " CLUSTER_ACTION on the cluster; name this broker's user in super.users of every broker"
    ]
