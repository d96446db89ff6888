"""A PostgreSQL cluster of a test's own: in a folder that goes with it, on a port of its own."""

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

import psycopg

from tests.support.peer.child import free_port

USER = "oncelog"
PASSWORD = "not in any log"
UNPRIVILEGED = ("postgres", "nobody")
START_TIMEOUT_S = 60


def why_not() -> str | None:
    """The reason why no cluster can be had here, or None."""
    if _program("initdb") is None or _program("postgres") is None:
        return "PostgreSQL is not installed (Debian: apt install postgresql)"
    if os.getuid() == 0 and _account() is None:
        return f"PostgreSQL refuses root, and there is no user {' or '.join(UNPRIVILEGED)}"
    return None


class PostgresProcess:
    """A cluster; `kill` and `start` may be called in turns."""

    def __init__(self) -> None:
        # Not under tmp_path: its parents are closed to the user that PostgreSQL runs as.
        self.folder = Path(tempfile.mkdtemp(prefix="oncelog-postgres-"))
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"jdbc:postgresql://127.0.0.1:{self.port}/postgres"

    def __enter__(self) -> "PostgresProcess":
        account = _account()
        if account is not None:
            os.chown(self.folder, account.pw_uid, account.pw_gid)
        secret = self.folder / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        initdb = [str(_program("initdb")), "--pgdata", str(self.folder / "data"), "--no-sync"]
        initdb += ["--username", USER, "--auth", "scram-sha-256", "--pwfile", str(secret)]
        self._run([*initdb, "--encoding", "UTF8", "--locale", "C"]).wait()
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self) -> None:
        command = [str(_program("postgres")), "-D", str(self.folder / "data")]
        command += ["-p", str(self.port), "-k", str(self.folder)]
        command += ["-c", "listen_addresses=127.0.0.1", "-c", "shared_buffers=32MB"]
        self._process = self._run(command)
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                self.connect().close()
                return
            except psycopg.OperationalError:
                assert time.monotonic() < deadline, (self.folder / "log").read_text()
                time.sleep(0.05)

    def kill(self, number: int = signal.SIGKILL) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)
            self._process.wait()
            self._process = None

    def freeze(self) -> list[int]:
        """Stop its processes with SIGSTOP: it accepts connections, and answers nothing.

        Return their ids, for `thaw`.
        """
        assert self._process is not None
        pids = [self._process.pid]
        pids += [pid for (pid,) in self.rows("SELECT pid FROM pg_stat_activity") if pid is not None]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        return pids

    def thaw(self, pids: Iterable[int]) -> None:
        """Let the processes go on."""
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def connect(self, **options: Any) -> "psycopg.Connection[Any]":
        return psycopg.connect(
            host="127.0.0.1",
            port=self.port,
            user=USER,
            password=PASSWORD,
            dbname="postgres",
            autocommit=True,
            **options,
        )

    def rows(self, statement: str) -> list[Any]:
        with self.connect() as connection:
            return connection.execute(statement.encode()).fetchall()

    def run(self, *statements: str) -> None:
        with self.connect() as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def _run(self, command: list[str]) -> "subprocess.Popen[bytes]":
        account = _account()
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                user=None if account is None else account.pw_uid,
                group=None if account is None else account.pw_gid,
                extra_groups=None if account is None else [],
            )


def _account() -> pwd.struct_passwd | None:
    """Who PostgreSQL runs as, where we are root."""
    if os.getuid() != 0:
        return None
    for name in UNPRIVILEGED:
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    return None


def _program(name: str) -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    if found:
        return found[-1]
    on_path = shutil.which(name)
    return None if on_path is None else Path(on_path)
