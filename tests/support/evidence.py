"""Keeps what the long runs found: one row each in docs/evidence.md, for readers who run none.

A row is that of a campaign's last call. What a campaign needs to go on where it was interrupted
stands in .cache/evidence, which git does not know.
"""

import json
import os
import subprocess
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "docs" / "evidence.md"
CACHE = ROOT / ".cache" / "evidence"
RULE = "|---|---|---|---|---|---|---|\n"
"""The line of the table after which its rows begin."""

Entry = dict[str, Any]
"""What a campaign keeps for its next call, as JSON."""


def git(*args: str) -> str:
    """Output of a git command in this checkout."""
    done = subprocess.run(["git", *args], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def commit() -> str:
    """The commit that was tested, with "+changes" when the code in the work tree differs."""
    changed = git("status", "--porcelain", "--", "src", "tests", "bench")
    return git("rev-parse", "HEAD") + ("+changes" if changed else "")


def note(
    campaign: str, verdict: str, count: str, how: str, *, seed: object = "", at_commit: str = ""
) -> None:
    """Put this row in the place of the campaign's row before.

    `count` says how much was done and of what, `how` is the command that repeats it.
    """
    tested, _, changes = (at_commit or commit()).partition("+")
    day = datetime.now(UTC).date().isoformat()
    cells = (campaign, verdict, count, str(seed), f"{tested[:10]}{changes and ' + changes'}", day)
    head, _, rest = TABLE.read_text().partition(RULE)
    rows = {line.split(" | ")[0]: line for line in rest.splitlines()}
    rows[f"| {campaign}"] = f"| {' | '.join(cells)} | `{how}` |"
    body = "".join(f"{line}\n" for _, line in sorted(rows.items()))
    _write(TABLE, head + RULE + body)


def keep(name: str, entry: Entry) -> None:
    """Keep an entry for the next call of this checkout."""
    CACHE.mkdir(parents=True, exist_ok=True)
    _write(CACHE / f"{name}.json", json.dumps(entry, indent=2) + "\n")


def kept(name: str) -> Entry:
    """What an earlier call has kept; nothing if there was none."""
    path = CACHE / f"{name}.json"
    found: Entry = json.loads(path.read_text()) if path.exists() else {}
    return found


@cache
def sources(at_commit: str, *paths: str) -> str:
    """What those folders and files hold at a commit; it stays the same while only others change."""
    if at_commit.endswith("+changes"):
        return at_commit
    return git("rev-parse", *(f"{at_commit}:{path}" for path in paths)) or at_commit


def _write(path: Path, text: str) -> None:
    whole = path.with_suffix(".new")
    whole.write_text(text)
    os.replace(whole, path)
