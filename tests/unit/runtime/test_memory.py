"""The allocator is told where it listens, and left alone elsewhere; so is the collector."""

import gc
import platform

import pytest

from oncelog import EmbeddedBroker
from oncelog.core.limits import COLLECTOR_THRESHOLDS
from oncelog.runtime import memory


def test_glibc_takes_the_limits() -> None:
    assert memory.keep_freed_memory() is (platform.libc_ver()[0] == "glibc")


def test_other_systems_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    assert not memory.keep_freed_memory()


def test_the_collector_looks_at_what_comes_from_now_on_in_small_steps() -> None:
    before = gc.get_threshold()
    try:
        memory.collect_in_small_steps()
        assert gc.get_threshold() == COLLECTOR_THRESHOLDS
        assert gc.get_freeze_count() > 0
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def test_an_embedded_broker_leaves_the_collector_of_its_process_alone() -> None:
    before = gc.get_threshold(), gc.get_freeze_count(), gc.isenabled()
    with EmbeddedBroker():
        assert (gc.get_threshold(), gc.get_freeze_count(), gc.isenabled()) == before
