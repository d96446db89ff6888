"""The copy of a topic as docs/cli.md has it; `tests/e2e/test_documents.py` runs the whole page."""

from __future__ import annotations

import json
import re

import pytest

from oncelog import EmbeddedBroker
from tests.support.documents.blocks import blocks
from tests.support.documents.terminal import Terminal


def records(terminal: Terminal, topic: str) -> list[tuple[object, ...]]:
    """Partition, offset, key and value of each record."""
    printed = terminal.run(f"oncelog consume {topic} --from-beginning --until-end --json")
    found = [json.loads(line) for line in printed.text.splitlines() if line.startswith("{")]
    return sorted((r["partition"], r["offset"], r.get("key"), r["value"]) for r in found)


@pytest.mark.slow
def test_the_copy_of_a_topic_holds_the_same_records() -> None:
    text = "".join(block.text for block in blocks("docs/cli.md"))
    lines = re.findall(r"^\$ (.*(?:create|produce) orders-copy.*)", text, re.MULTILINE)
    assert len(lines) == 2
    with EmbeddedBroker() as broker:
        terminal = Terminal({"ONCELOG_BOOTSTRAP_SERVER": broker.bootstrap_servers})
        terminal.run("oncelog topics create orders --partitions 4")
        lines.insert(0, r"printf 'a:3 figs\nb:1 pear\n' | oncelog produce orders --key-separator :")
        for line in lines:
            assert terminal.run(line).exit_code == 0
        copied = records(terminal, "orders-copy")
        assert len(copied) == 2
        assert copied == records(terminal, "orders")
