"""The ports of brokers in tests and benches."""

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Self

import pytest

from tests.support.peer import child


@pytest.fixture(autouse=True)
def own_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def take(count: int) -> list[int]:
    return [child.free_port() for _ in range(count)]


def test_processes_that_ask_at_the_same_time_get_different_ports(tmp_path: Path) -> None:
    """A port is bound later, when the kernel may have given it to another."""
    ports = "print(*(free_port() for _ in range(50)))"
    program = f"from tests.support.peer.child import free_port; {ports}"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    asking = [
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment)
        for _ in range(3)
    ]
    found = [int(port) for each in asking for port in each.communicate()[0].split()]
    assert len(set(found)) == 150
    assert set(found) <= set(child.PORTS)


class Probe:
    """A socket that can be bound to every port but one."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def bind(self, address: tuple[str, int]) -> None:
        if address[1] == 2:
            raise OSError("Address already in use")


def test_a_port_in_use_is_passed_over_and_the_last_is_followed_by_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(child, "PORTS", range(1, 4))
    monkeypatch.setattr(socket, "socket", Probe)
    assert take(3) == [3, 1, 3]


def test_no_free_port_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "PORTS", range(2, 3))
    monkeypatch.setattr(socket, "socket", Probe)
    with pytest.raises(RuntimeError, match="no port from 2 to 2 is free"):
        child.free_port()
