"""Scenarios as text files: narrated commands, each with its exact output.

A file is a sequence of steps: lines that begin with # tell the story, then one command, then ----
and what comes of it, then an empty line. `REWRITE_SCENARIOS=1 pytest tests/scenarios` writes what
comes out into the files, to be read before it is committed.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

__all__ = ["Step", "compare", "read_steps"]


@dataclass
class Step:
    """One command of a file, with the lines before it and the output after it."""

    story: list[str]
    command: str
    expected: list[str]


def read_steps(path: Path) -> list[Step]:
    """The steps of a file; one that only tells something has no command."""
    steps = []
    for block in path.read_text().strip().split("\n\n"):
        lines = block.split("\n")
        story = list(takewhile(lambda line: line.startswith("#"), lines))
        rest = lines[len(story) :]
        if not rest:
            steps.append(Step(story, "", []))
            continue
        assert rest[1:2] == ["----"], f"after a command comes ----: {block}"
        steps.append(Step(story, rest[0], rest[2:]))
    return steps


def compare(path: Path, outputs: Sequence[list[str]]) -> None:
    """Demand that each step of the file came to the output that it tells, or write it there."""
    steps = read_steps(path)
    if os.environ.get("REWRITE_SCENARIOS"):
        path.write_text(_written(steps, outputs))
        return
    for step, output in zip(steps, outputs, strict=True):
        assert output == step.expected, f"{path.name}: {step.command}"


def _written(steps: Sequence[Step], outputs: Sequence[list[str]]) -> str:
    blocks = []
    for step, output in zip(steps, outputs, strict=True):
        body = [step.command, "----", *output] if step.command else []
        blocks.append("\n".join(step.story + body))
    return "\n\n".join(blocks) + "\n"
