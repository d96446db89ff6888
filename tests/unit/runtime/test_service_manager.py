"""What systemd is told of the process."""

from __future__ import annotations

import logging
import socket
from pathlib import Path

import pytest

from oncelog.runtime.service_manager import notify


def test_it_is_told_at_the_address_that_it_has_given(tmp_path: Path) -> None:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(path)
        notify("READY=1", {"NOTIFY_SOCKET": path})
        assert manager.recv(100) == b"READY=1"


def test_an_abstract_address_begins_with_a_zero_byte() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("")  # The kernel chooses a name.
        name = manager.getsockname()
        notify("STOPPING=1", {"NOTIFY_SOCKET": "@" + name[1:].decode()})
        assert manager.recv(100) == b"STOPPING=1"


def test_nothing_is_told_where_nobody_asks(caplog: pytest.LogCaptureFixture) -> None:
    notify("READY=1", {})
    assert not caplog.records


def test_a_manager_that_is_gone_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        notify("READY=1", {"NOTIFY_SOCKET": str(tmp_path / "gone")})
    assert "does not take READY=1" in caplog.text
