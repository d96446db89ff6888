"""A record that cannot be encoded is refused by `send`, and harms no other."""

from typing import Any

import pytest

from oncelog.client import Producer
from oncelog.client.payload import checked_record
from tests.unit.client.scripted_broker import ScriptedBroker


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"value": "text"}, "the value must be bytes or None, not str"),
        ({"value": {"a": 1}}, "the value must be bytes or None, not dict"),
        ({"key": "k"}, "the key must be bytes or None, not str"),
        ({"key": 7, "partition": 0}, "the key must be bytes or None, not int"),
        ({"headers": {"a": b"1"}}, "headers must be pairs of a name and bytes or None"),
        ({"headers": [("a", "1")]}, "headers must be pairs of a name and bytes or None"),
        ({"headers": [(b"a", b"1")]}, "headers must be pairs of a name and bytes or None"),
        ({"headers": [("a",)]}, "headers must be pairs of a name and bytes or None"),
        ({"headers": [("\ud800", b"1")]}, "a header's name must be text that UTF-8 can encode"),
        ({"timestamp_ms": 1.5}, "timestamp_ms must be a whole number, or -1 for none, not 1.5"),
        ({"timestamp_ms": -2}, "timestamp_ms must be a whole number, or -1 for none, not -2"),
        ({"timestamp_ms": 2**63}, "timestamp_ms must be a whole number, or -1 for none"),
        ({"partition": -1}, "the partition must be a whole number from 0 on"),
        ({"partition": "0"}, "the partition must be a whole number from 0 on"),
        ({"topic": b"t"}, "the topic must be a str"),
    ],
)
async def test_what_cannot_be_encoded_is_refused_at_once(given: dict[str, Any], what: str) -> None:
    async with Producer("b:1", **ScriptedBroker().options()) as producer:
        with pytest.raises((TypeError, ValueError), match=what):
            producer.send(**{"topic": "t", "value": b"v", **given})
        sent = await producer.send("t", b"v", key=b"k", headers=[("h", None), ("i", b"1")])
        assert sent.offset == 0


async def test_buffers_are_values_and_keys() -> None:
    async with Producer("b:1", **ScriptedBroker().options()) as producer:
        sent = await producer.send("t", memoryview(b"v"), key=bytearray(b"k"))  # type: ignore[arg-type]
        assert sent.offset == 0


def test_a_buffer_may_be_filled_anew_once_it_is_sent() -> None:
    """Else the record would be what the buffer holds when its batch is encoded."""
    buffer = bytearray(b"first")
    headers: list[Any] = [("h", buffer)]
    record = checked_record("t", None, buffer, memoryview(buffer), headers, -1)
    buffer[:] = b"other"
    assert record[2:] == (b"first", b"first", (("h", b"first"),))
