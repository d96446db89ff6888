"""What deploy/container says, and brokers started as it says, without a container around them.

The names of its three brokers stand for ports of loopback here, and its folders for folders of the
test; everything else of a command is as the container runs it.
"""

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from mkdocs.utils.yaml import yaml_load

from oncelog.cli.properties import parse_properties
from tests.support.install_size import ROOT
from tests.support.peer.child import BrokerChild

__all__ = ["FOLDER", "ContainerBroker", "instructions", "services", "settings_of", "three_brokers"]

FOLDER: Final = ROOT / "deploy/container"
IN_CONTAINER: Final = "/var/lib/oncelog"
SETTINGS_FILE: Final = "/etc/oncelog/server.properties"
READY_TIMEOUT_S: Final = 60.0


def instructions() -> list[tuple[str, str]]:
    """(instruction, its arguments) of the Containerfile, in order."""
    text = (FOLDER / "Containerfile").read_text()
    lines = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    pairs = (line.split(maxsplit=1) for line in lines.splitlines() if line.strip())
    return [(name, " ".join(arguments.split())) for name, arguments in pairs]


def entrypoint() -> list[str]:
    """The command that every container runs, before the arguments of its own."""
    ((_, text),) = [pair for pair in instructions() if pair[0] == "ENTRYPOINT"]
    command: list[str] = json.loads(text)
    return command


def services() -> dict[str, dict[str, Any]]:
    """The services of compose.yaml by name, with what they share filled in."""
    found: dict[str, dict[str, Any]] = yaml_load((FOLDER / "compose.yaml").read_text())["services"]
    return found


def settings_of(service: Mapping[str, Any]) -> dict[str, str]:
    """The settings that a broker of compose.yaml has: those of the file, then its own."""
    file = next(v for v in service["volumes"] if v.endswith(f":{SETTINGS_FILE}:ro"))
    settings = parse_properties((FOLDER / file.partition(":")[0]).read_text())
    own = [word for word in service["command"] if word != "--set"]
    return settings | dict(word.split("=", 1) for word in own)


class ContainerBroker(BrokerChild):
    """A broker of compose.yaml as a process. `oncelog` is the command in its environment."""

    def __init__(
        self, name: str, folder: Path, oncelog: Sequence[str], variables: Mapping[str, str]
    ) -> None:
        super().__init__(folder / name)
        self.service = services()[name]
        self._shared = folder
        self._oncelog, self._variables = oncelog, variables

    @property
    def command(self) -> list[str]:
        """What its container runs, with folders and ports of the test."""
        words = [*self._oncelog, *entrypoint()[1:], *self.service["command"]]
        settings = settings_of(self.service)
        metrics = settings["oncelog.metrics.address"]
        _, _, port = settings["advertised.listeners"].rpartition(":")
        host = settings["advertised.listeners"].removeprefix("PLAINTEXT://").rpartition(":")[0]
        file = self.folder / "server.properties"
        text = (FOLDER / "cluster.properties").read_text()
        text = text.replace(f"{IN_CONTAINER}/data", str(self.folder / "data"))
        text = text.replace(f"{IN_CONTAINER}/metadata", str(self._shared / "metadata"))
        file.write_text(text.replace(metrics, "127.0.0.1:0"))
        here = {SETTINGS_FILE: str(file), f"0.0.0.0:{port}": self.bootstrap_servers}
        here[f"{host}:{port}"] = self.bootstrap_servers
        for told, used in here.items():
            words = [word.replace(told, used) for word in words]
        return words

    def start(self) -> None:
        for folder in (self.folder / "data", self._shared / "metadata"):
            folder.mkdir(parents=True, exist_ok=True)
        log = self.folder / "log"
        environment = {**self._variables, "PYTHONUNBUFFERED": "1"}
        try:
            self.launch(self.command, log, READY_TIMEOUT_S, environment)
        except RuntimeError as error:
            raise RuntimeError(f"{error}; its log:\n{log.read_text()[-3000:]}") from None

    def __enter__(self) -> "ContainerBroker":
        self.start()
        return self


def three_brokers(
    folder: Path,
    oncelog: Sequence[str] = (sys.executable, "-m", "oncelog"),
    variables: Mapping[str, str] = os.environ,
) -> list[ContainerBroker]:
    """Those of compose.yaml, not started yet."""
    return [ContainerBroker(name, folder, oncelog, variables) for name in services()]
