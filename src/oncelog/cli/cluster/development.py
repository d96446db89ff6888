"""``oncelog cluster``: brokers of a development cluster on this machine, a process for each.

Each is ``oncelog serve`` with a folder of its own below ``--data-dir``; all have one metadata file
there. Their log lines go to ``broker-N.log``. Ctrl-C and SIGTERM stop them in order, one after the
other, so that each hands over what it leads.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import IO, Final

import click

from oncelog.cli.output import Column, print_rows, say, warn
from oncelog.cli.serve import stop_signals
from oncelog.cli.tool import Failure
from oncelog.controller.cluster_config import replicated_defaults
from oncelog.core.cluster_limits import CLUSTER_PROCESSES_COUNT_MAX
from oncelog.storage.files import META_NAME

__all__ = ["run_cluster"]

START_S_MAX: Final = 60.0
STOP_S_MAX: Final = 60.0
LOOK_S: Final = 0.2
FOLDER: Final = re.compile(r"broker-(\d+)")
READY: Final = re.compile(r"oncelog: ready on (\S+)")
_COLUMNS: Final = (
    Column("broker", "Broker", numeric=True, style="cyan"),
    Column("address", "Address", wraps=True),
    Column("pid", "Process", numeric=True),
    Column("log", "Log", wraps=True, spare=1),
)


class _Process:
    """The process of one broker."""

    def __init__(self, broker_id: int, folder: Path, arguments: Sequence[str]) -> None:
        self.broker_id = broker_id
        self.log = folder / f"broker-{broker_id}.log"
        self.address = ""
        self._begun_at = self.log.stat().st_size if self.log.exists() else 0
        command = [sys.executable, "-m", "oncelog", "serve", *arguments]
        with self.log.open("ab") as lines:
            # In a group of its own: a Ctrl-C of the terminal must not reach all of them at once.
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=lines, start_new_session=True
            )
        self._said = b""

    @property
    def output(self) -> IO[bytes]:
        """Its standard output, until it is ready."""
        assert self.process.stdout is not None
        return self.process.stdout

    def read(self) -> bool:
        """Read what it says; whether it is ready by now. Raises `Failure` if it has ended."""
        data = os.read(self.output.fileno(), 65536)
        self._said += data
        found = READY.search(self._said.decode(errors="replace"))
        if found is not None:
            self.address = found[1]
        elif not data:
            self.process.wait()
            raise Failure(f"broker {self.broker_id} did not start: {self.last_line()}")
        return found is not None

    def last_line(self) -> str:
        """Return the last line of its log in this life."""
        with self.log.open("rb") as lines:
            lines.seek(self._begun_at)
            said = lines.read().decode(errors="replace").strip().splitlines()
        return said[-1].removeprefix("Error: ") if said else f"see {self.log}"

    def ending(self) -> str:
        """Say how it has ended."""
        code = self.process.returncode
        if code < 0:
            return f"was ended by {signal.Signals(-code).name}: start the cluster again"
        return f"has ended: {self.last_line()}"

    def stop(self) -> None:
        """Stop it in order; kill it if that takes too long."""
        if self.process.poll() is not None:
            return
        self.process.terminate()
        try:
            self.process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            warn(f"broker {self.broker_id} does not stop, and is killed")
            self.process.kill()
            self.process.wait()


def run_cluster(
    brokers: int, data_dir: str, listen: tuple[str, int], settings: Sequence[str], *, as_json: bool
) -> int:
    """Start the brokers, print a table of them, and wait for a signal; returns the exit code."""
    if not 1 <= brokers <= CLUSTER_PROCESSES_COUNT_MAX:
        raise Failure(f"--brokers {brokers}: it takes 1 to {CLUSTER_PROCESSES_COUNT_MAX}")
    folder = Path(data_dir)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Failure(f"cannot make {folder}: {error.strerror}") from None
    _look_into(folder, brokers)
    asked: list[int] = []

    def ask(number: int, _: FrameType | None) -> None:
        asked.append(number)

    for number in stop_signals():
        signal.signal(number, ask)
    members: list[_Process] = []
    try:
        for broker_id in range(1, brokers + 1):
            given = _arguments(broker_id, brokers, folder, listen, settings)
            members.append(_Process(broker_id, folder, list(given)))
        _wait_until_ready(members, asked)
        if not asked:
            rows = [(m.broker_id, m.address, m.process.pid, str(m.log)) for m in members]
            print_rows(_COLUMNS, rows, as_json=as_json)
            addresses = ",".join(member.address for member in members)
            click.echo(f"oncelog: cluster ready on {addresses}")
            sys.stdout.flush()
        return _watch(members, asked)
    finally:
        for member in members:
            member.stop()
        say("the cluster has stopped")


def _look_into(folder: Path, count: int) -> None:
    """Refuse a broker's own folder, and name the brokers of before that are not started."""
    if (folder / META_NAME).exists():
        # Its metadata would be that of the cluster, and its logs in no broker of it.
        text = f"{folder} is a log directory of one broker: name another folder for a cluster"
        raise Failure(text)
    found = [FOLDER.fullmatch(path.name) for path in folder.iterdir()]
    idle = sorted(number for one in found if one and (number := int(one[1])) > count)
    if idle:
        named = ", ".join(map(str, idle))
        warn(
            f"{folder} has the brokers {named} too, which are not started: what no other has in "
            "sync is not served"
        )


def _arguments(
    broker_id: int, count: int, folder: Path, listen: tuple[str, int], settings: Sequence[str]
) -> Iterator[str]:
    host, port = listen
    own = {
        "node.id": broker_id,
        "oncelog.metadata.file": folder / "metadata.sqlite",
        **replicated_defaults(count),
    }
    yield f"--data-dir={folder / f'broker-{broker_id}'}"
    yield f"--listen={host}:{port + broker_id - 1 if port else 0}"
    yield from (f"--set={key}={value}" for key, value in own.items())
    yield from (f"--set={setting}" for setting in settings)


def _wait_until_ready(members: Sequence[_Process], asked: Sequence[int]) -> None:
    waiting = list(members)
    deadline_s = time.monotonic() + START_S_MAX
    while waiting and not asked:
        outputs = [member.output for member in waiting]
        readable, _, _ = select.select(outputs, [], [], LOOK_S)
        for member in list(waiting):
            if member.output in readable and member.read():
                waiting.remove(member)
        if time.monotonic() > deadline_s:
            late = ", ".join(str(member.broker_id) for member in waiting)
            raise Failure(f"not ready within {START_S_MAX:g} s: broker {late}")


def _watch(members: Sequence[_Process], asked: Sequence[int]) -> int:
    """Wait for a signal, and say which broker has ended meanwhile; returns the exit code."""
    alive = list(members)
    while not asked:
        for member in list(alive):
            if member.process.poll() is not None:
                alive.remove(member)
                warn(f"broker {member.broker_id} {member.ending()}")
        if not alive:
            return 1
        time.sleep(LOOK_S)
    return 0
