"""A real `oncelog serve` process that tests start, kill with SIGKILL and start again."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from oncelog.controller.cluster_config import replicated_defaults
from tests.support.left_folders import check_left
from tests.support.peer.child import BrokerChild

READY_TIMEOUT_S = 30
OURS = (sys.executable, "-m", "oncelog")


class BrokerProcess(BrokerChild):
    """One broker on loopback, on a port and a folder that survive its restarts.

    `oncelog` is the command in another environment, and `variables` what it sees there.
    """

    def __init__(
        self,
        folder: Path,
        settings: dict[str, str] | None = None,
        ready_timeout_s: float = READY_TIMEOUT_S,
        oncelog: Sequence[str] = OURS,
        variables: Mapping[str, str] = os.environ,
    ) -> None:
        super().__init__(folder)
        self.settings = settings or {}
        self.ready_timeout_s = ready_timeout_s
        self._oncelog, self._variables = oncelog, variables

    @property
    def log_path(self) -> Path:
        return self.folder.with_name(self.folder.name + ".log")

    def start(self) -> None:
        command = [*self._oncelog, "serve"]
        command += ["--data-dir", str(self.folder), "--listen", self.bootstrap_servers]
        for key, value in self.settings.items():
            command += ["--set", f"{key}={value}"]
        environment = {**self._variables, "PYTHONUNBUFFERED": "1"}
        try:
            self.launch(command, self.log_path, self.ready_timeout_s, environment)
        except RuntimeError as error:
            raise RuntimeError(f"{error}; its log ends:\n{self.log_tail()}") from None

    def kill(self) -> None:
        """See `BrokerChild`; what it leaves has to agree with its logs."""
        super().kill()
        check_left(self.folder, was_closed=False)

    def stop(self) -> int:
        """See `BrokerChild`; what it leaves has to agree with its logs."""
        code = super().stop()
        check_left(self.folder, was_closed=code == 0)
        return code

    def log_tail(self) -> str:
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-30:])

    def __enter__(self) -> "BrokerProcess":
        self.start()
        return self


def broker_processes(
    folder: Path, count: int, settings: Mapping[str, str] | None = None
) -> list[BrokerProcess]:
    """The brokers of one cluster, with the ids 1, 2, 3 and a SQLite file of them all."""
    own = {"oncelog.metadata.file": folder / "metadata.sqlite", **replicated_defaults(count)}
    shared = {**{key: str(value) for key, value in own.items()}, **(settings or {})}
    folder.mkdir(parents=True, exist_ok=True)
    return [
        BrokerProcess(folder / f"broker-{number}", {"node.id": str(number), **shared})
        for number in range(1, count + 1)
    ]
