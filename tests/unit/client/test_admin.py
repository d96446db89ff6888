"""What the administrator's client refuses before it asks a broker."""

import pytest

from oncelog.client import Admin
from tests.unit.client.scripted_broker import ScriptedBroker


async def test_a_name_in_place_of_names_deletes_no_topic() -> None:
    broker = ScriptedBroker()
    async with Admin("b:1", **broker.options()) as admin:
        before = len(broker.seen)
        with pytest.raises(TypeError, match="not the str 'orders'"):
            await admin.delete_topics("orders")
        assert len(broker.seen) == before
