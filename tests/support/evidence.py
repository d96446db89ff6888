"""Writes what a long run found to docs/evidence/, for readers who do not run it themselves."""

import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "evidence"

Entry = dict[str, Any]
"""What one call of a campaign found, as JSON: commit, seeds, verdict, counts."""


def git(*args: str) -> str:
    """Output of a git command in this checkout."""
    done = subprocess.run(["git", *args], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def commit() -> str:
    """The commit that was tested, with "+changes" when the code in the work tree differs."""
    changed = git("status", "--porcelain", "--", "src", "tests", "bench")
    return git("rev-parse", "HEAD") + ("+changes" if changed else "")


def write(name: str, verdict: str, facts: dict[str, object]) -> Path:
    """Write docs/evidence/<name>.json and return its path."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{name}.json"
    document = {
        "run": name,
        "verdict": verdict,
        "commit": commit(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        **facts,
    }
    whole = path.with_suffix(".new")
    whole.write_text(json.dumps(document, indent=2) + "\n")
    os.replace(whole, path)
    return path


def read(name: str) -> Entry:
    """What docs/evidence/<name>.json says; nothing if it is not there."""
    path = FOLDER / f"{name}.json"
    found: Entry = json.loads(path.read_text()) if path.exists() else {}
    return found


@cache
def sources(at_commit: str, *paths: str) -> str:
    """What those folders and files hold at a commit; it stays the same while only others change."""
    if at_commit.endswith("+changes"):
        return at_commit
    return git("rev-parse", *(f"{at_commit}:{path}" for path in paths)) or at_commit


class Sum:
    """Evidence that adds up over the calls of a campaign, each of which is an entry.

    The entries of other sources stay, but only those of the present ones count for the verdict.
    `paths` are the folders that matter for it. Calls may run side by side.
    """

    def __init__(self, name: str, counted: str, *paths: str) -> None:
        self.name = name
        self.counted = counted
        self._paths = paths
        self._written: Sequence[Entry] = ()

    def entries(self) -> list[Entry]:
        """Those in the file, of all calls and commits."""
        found: list[Entry] = read(self.name).get("campaigns", [])
        return found

    def facts(self, at_commit: str) -> Entry:
        """What the file says beside its entries, if its last call was on the same sources."""
        document = read(self.name)
        is_current = "commit" in document and self._of_sources(at_commit, [document])
        return document if is_current else {}

    def has_seen(self, at_commit: str, seeds: range) -> bool:
        """Whether an entry of the same sources has one of these seeds."""
        return any(
            entry["seeds"][0] <= seeds[-1] and seeds[0] <= entry["seeds"][1]
            for entry in self._of_sources(at_commit, self.entries())
        )

    def write(self, entries: Sequence[Entry], facts: Mapping[str, object] | None = None) -> Path:
        """Put the entries of this call in the place of those that it wrote before."""
        others = [entry for entry in self.entries() if entry not in self._written]
        campaigns = [*others, *entries]
        self._written = json.loads(json.dumps(entries))
        present = self._of_sources(entries[-1]["commit"], campaigns)
        failed = any(entry["verdict"] != "passed" for entry in present)
        counts = {
            f"{self.counted} on all commits": sum(each[self.counted] for each in campaigns),
            f"{self.counted} on these sources": sum(each[self.counted] for each in present),
        }
        verdict = "failed" if failed else "passed"
        return write(self.name, verdict, {**counts, **(facts or {}), "campaigns": campaigns})

    def _of_sources(self, at_commit: str, entries: Sequence[Entry]) -> list[Entry]:
        wanted = sources(at_commit, *self._paths)
        return [each for each in entries if sources(each["commit"], *self._paths) == wanted]
