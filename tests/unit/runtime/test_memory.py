"""The allocator is told where it listens, and left alone elsewhere."""

import platform

import pytest

from oncelog.runtime import memory


def test_glibc_takes_the_limits() -> None:
    assert memory.keep_freed_memory() is (platform.libc_ver()[0] == "glibc")


def test_other_systems_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    assert not memory.keep_freed_memory()
