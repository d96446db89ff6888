"""What a real broker claims of the life before: SIGKILL, copies and older folders."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from tests.support.broker import BrokerProcess

pytestmark = [pytest.mark.slow, pytest.mark.interop]

NOTE_TIMEOUT_S = 10
UNCLEAN = "registering as unclean"


def note(broker: BrokerProcess) -> int | None:
    """The inode of the note, which each life replaces."""
    path = broker.folder / "oncelog.life"
    return path.stat().st_ino if path.exists() else None


def begin(broker: BrokerProcess) -> None:
    """Start the broker, and wait until this life has its note."""
    before = note(broker)
    broker.start()
    deadline = time.monotonic() + NOTE_TIMEOUT_S
    while note(broker) in (before, None):
        assert time.monotonic() < deadline, "the broker notes no life"
        time.sleep(0.01)


def unclean_count(broker: BrokerProcess) -> int:
    return broker.log_path.read_text().count(UNCLEAN)


def test_a_broker_that_is_killed_twice_is_clean_on_the_same_boot(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data")
    for _ in range(3):
        begin(broker)
        broker.kill()
    assert unclean_count(broker) == 0


def test_a_copied_folder_of_a_killed_broker_is_unclean(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data")
    begin(broker)
    broker.kill()
    shutil.copytree(broker.folder, tmp_path / "copy")
    shutil.rmtree(broker.folder)
    os.rename(tmp_path / "copy", broker.folder)
    with broker:
        assert f"{UNCLEAN}: {broker.folder} is a copy" in broker.log_path.read_text()
        broker.stop()
        broker.start()
        assert unclean_count(broker) == 1
