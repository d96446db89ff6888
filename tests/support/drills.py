"""Carries out the commands of docs/drills.md on brokers of a test."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from typing import Any, Final

from oncelog.sync import Consumer
from tests.support.documents.blocks import blocks

__all__ = ["Operator", "read_numbers"]

PAGE: Final = "docs/drills.md"
NAMED_THERE: Final = "broker1.example:9092"
WAIT_S: Final = 60.0


class Operator:
    """Knows the page, and the address of the brokers that stands there in its own way."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        lines = "".join(block.text for block in blocks(PAGE)).splitlines()
        self._commands = [line.strip() for line in lines]

    def run(self, begins: str, *more: str, code: int = 0) -> str:
        """Carry out the one command of the page that begins so; returns what it prints.

        `more` are options that the page does not have.
        """
        line = {line for line in self._commands if line.startswith(f"{begins} --bootstrap-server")}
        assert len(line) == 1, f"{PAGE} has {len(line)} commands that begin with {begins}"
        words = shlex.split(line.pop().replace(NAMED_THERE, self.servers))
        command = [sys.executable, "-m", *words, *more]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=WAIT_S)
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    def status(self) -> dict[str, Any]:
        """Look at the cluster."""
        found: dict[str, Any] = json.loads(self.run("oncelog cluster status", "--json"))
        return found

    def away(self) -> list[int]:
        """The brokers that are away."""
        return [one["broker"] for one in self.status()["brokers"] if one["address"] is None]

    def wait_in_sync(self, brokers_count: int) -> None:
        """Look until so many brokers are there, and every replica is in sync."""
        deadline_s = time.monotonic() + WAIT_S
        while True:
            status = self.status()
            there = [one for one in status["brokers"] if one["address"] is not None]
            if len(there) == brokers_count and not status["troubles"]:
                return
            assert time.monotonic() < deadline_s, status
            time.sleep(0.2)


def read_numbers(servers: str, topic: str, count: int) -> list[int]:
    """Read so many records, or more, as group "g", and commit them; returns their values sorted."""
    found: list[int] = []
    with Consumer(servers, group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        while len(found) < count:
            found += [int(record.value or b"-1") for record in consumer.poll(1000)]
        consumer.commit()
    return sorted(found)
