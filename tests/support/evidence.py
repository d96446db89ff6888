"""Writes what a long run found to docs/evidence/, for readers who do not run it themselves."""

import json
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "evidence"


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
    path.write_text(json.dumps(document, indent=2) + "\n")
    return path
