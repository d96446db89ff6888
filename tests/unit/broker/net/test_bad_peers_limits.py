"""The limits on connections, as an operator sets them, against a real `oncelog serve`."""

from __future__ import annotations

import contextlib
import struct
import time
from pathlib import Path

import pytest

from oncelog.protocol.api import ApiKey
from oncelog.protocol.headers import request_header_bytes
from tests.fuzz.serve import Served, Wire, healthy_peer

pytestmark = [pytest.mark.slow, pytest.mark.alone]

VERSIONS_FRAME = request_header_bytes(ApiKey.API_VERSIONS, 2, 7, "bad", False)


def is_served(wire: Wire) -> bool:
    wire.give(struct.pack(">i", len(VERSIONS_FRAME)) + VERSIONS_FRAME)
    return len(wire.answer()) > 8


@pytest.mark.parametrize("key", ["max.connections", "max.connections.per.ip"])
async def test_connections_beyond_the_limit_are_refused_and_others_live(
    tmp_path: Path, key: str
) -> None:
    with Served(tmp_path / "data", {key: "5"}) as served, contextlib.ExitStack() as stack:
        wires = []
        for _ in range(5):
            wires.append(stack.enter_context(contextlib.closing(served.connect())))
            assert is_served(wires[-1])
        for _ in range(20):
            with contextlib.closing(served.connect()) as refused:
                assert refused.is_closed()
        assert all(is_served(wire) for wire in wires)
        wires[0].close()
        # The place is free once the broker has seen its peer go.
        deadline = time.monotonic() + 10
        while True:
            with contextlib.closing(served.connect()) as another:
                if is_served(another):
                    break
            assert time.monotonic() < deadline, "the place did not become free"
        assert served.errors() == []


async def test_idle_connections_are_closed_and_busy_ones_are_not(tmp_path: Path) -> None:
    settings = {"connections.max.idle.ms": "1000"}
    with Served(tmp_path / "data", settings) as served, contextlib.ExitStack() as stack:
        silent = stack.enter_context(contextlib.closing(served.connect()))
        stalled = stack.enter_context(contextlib.closing(served.connect()))
        stalled.give(struct.pack(">i", 1000) + VERSIONS_FRAME)
        busy = stack.enter_context(contextlib.closing(served.connect()))
        begun = time.monotonic()
        closed_at: dict[str, float] = {}
        while len(closed_at) < 2 and time.monotonic() - begun < 10:
            assert is_served(busy)
            for name, wire in (("silent", silent), ("stalled", stalled)):
                if name not in closed_at and wire.is_closed(0.1):
                    closed_at[name] = time.monotonic() - begun
        assert closed_at.keys() == {"silent", "stalled"}
        assert min(closed_at.values()) > 0.9
        assert is_served(busy)
        with contextlib.closing(served.connect()) as wire:
            await healthy_peer(wire).ask(ApiKey.METADATA, 9, topics=())
        assert served.errors() == []
