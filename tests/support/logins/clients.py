"""What each stock client says: ``ok``, or its own error.

All cases of a client run at the same time, in a process of its own: clients that fail leave sockets
and log lines behind.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, Final

from tests.support.logins.brokers import Doors
from tests.support.logins.cases import CASES

__all__ = ["PYTHON_CLIENTS", "outcomes_of"]

PYTHON_CLIENTS: Final = ("confluent", "aiokafka", "kafka_python")
_TIMEOUT_S: Final = 90


def outcomes_of(client: str, doors: Doors, names: list[str]) -> dict[str, str]:
    """By case what a client of `PYTHON_CLIENTS` says."""
    given = {name: _way(doors, name) for name in names}
    command = [sys.executable, "-W", "ignore", "-m", f"tests.support.logins.{client}"]
    done = subprocess.run(
        command,
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    said: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return said


def _way(doors: Doors, name: str) -> dict[str, Any]:
    """All that a client needs to know of a case."""
    case, papers = CASES[name], doors.papers
    return {
        "address": doors.address(case.listener),
        "protocol": case.protocol,
        "mechanism": case.mechanism,
        "user": case.user,
        "secret": papers.secret(case) if case.mechanism else "",
        "authority": papers.authority(case) if case.has_tls else "",
        "own": papers.file(case.shows) if case.shows else "",
    }
