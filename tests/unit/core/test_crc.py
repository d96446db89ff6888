"""CRC-32C is the library's, and comes without what its package imports."""

import importlib.machinery
import subprocess
import sys

import pytest
from fastcrc import crc32 as library

from oncelog.core import crc


def test_it_is_the_function_of_the_library() -> None:
    assert crc.crc32c(b"123456789") == library.iscsi(b"123456789") == 0xE3069283
    assert crc.crc32c(memoryview(b"6789"), crc.crc32c(b"12345")) == 0xE3069283


def test_another_layout_of_the_library_is_imported_as_a_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.machinery.PathFinder, "find_spec", lambda *_: None)
    assert crc._loaded() is library.iscsi


@pytest.mark.parametrize("name", ["EmbeddedBroker", "Producer, Consumer"])
def test_no_import_pays_for_what_it_does_not_need(name: str) -> None:
    """See "Start and idle memory" in docs/performance.md."""
    program = f"import sys; from oncelog import {name}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert loaded.isdisjoint({"argparse", "importlib.metadata", "decimal", "sqlite3.dump"})
    assert "oncelog.protocol.messages.create_topics" not in loaded
    assert "oncelog.client.admin" not in loaded
