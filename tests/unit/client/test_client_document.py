"""Every example of docs/client.md runs, and prints what stands below it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from oncelog import EmbeddedBroker

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "client.md"
BLOCK = re.compile(r"```python\n(.*?)```(?:\n+```text\n(.*?)```)?", re.DOTALL)


@pytest.mark.slow
def test_the_examples_print_what_the_document_says(capsys: pytest.CaptureFixture[str]) -> None:
    text = DOCUMENT.read_text()
    blocks = BLOCK.findall(text)
    assert len(blocks) == text.count("```python")
    with EmbeddedBroker() as broker:
        for code, expected in blocks:
            names = {"servers": broker.bootstrap_servers, "__name__": "example"}
            exec(compile(code, str(DOCUMENT), "exec"), names)
            assert capsys.readouterr().out == expected, code
