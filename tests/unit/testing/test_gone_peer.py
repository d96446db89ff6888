"""A connection whose peer is gone before the broker of a test sees it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from oncelog.testing.network import _GuardedConnection


def test_a_peer_without_an_address_is_cut_off_from_nobody() -> None:
    cables = SimpleNamespace(listeners={}, sources={}, is_cut=lambda *_: True)
    network = SimpleNamespace(cables=cables, broker_id=1)
    made: list[object] = []
    protocol = SimpleNamespace(connection_made=made.append)
    guards: set[_GuardedConnection] = set()
    guard = _GuardedConnection(protocol, cast(Any, network), guards)
    names = {"sockname": ("127.0.0.1", 9092), "peername": None}
    guard.connection_made(cast(Any, SimpleNamespace(get_extra_info=names.get)))
    assert len(made) == 1
    assert guards == {guard}
