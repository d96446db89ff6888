"""Type checkers accept the documented style of settings, and find the typo."""

import inspect
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from oncelog.client.cluster import Cluster
from oncelog.client.settings import (
    AdminConfig,
    ConnectionOptions,
    ConsumerConfig,
    DriverConfig,
    ProducerConfig,
    Role,
)
from oncelog.client.settings.security import SECURITY_NAMES
from oncelog.client.settings.table import BY_ROLE
from tests.support.readers import SOURCES

RIGHT = """\
from oncelog import Admin, Consumer, Producer, sync
from oncelog.client import ConsumerConfig, TransactionDriver

Producer("localhost:9092", {"acks": "all", "linger.ms": 5, "compression.type": "zstd"})
Producer(["a:1", "b:2"], {"security.protocol": "SSL", "ssl.ca.location": "ca.pem"}, linger_ms=5)
Consumer("localhost:9092", {"group.id": "g", "enable.auto.commit": False}, first_contact_ms=None)
Admin("localhost:9092", {"client.id": "me"}, request_timeout_ms=5_000)
TransactionDriver("localhost:9092", "t", {"max.block.ms": 5})
sync.Producer("localhost:9092", {"transactional.id": "t"}, acks="all").flush()
shared: ConsumerConfig = {"auto.offset.reset": "earliest", "isolation.level": "read_committed"}
sync.Consumer("localhost:9092", {**shared, "group.id": "g"}, group_id=None).close()
"""

WRONG = (
    'Producer("b:1", {"liner.ms": 5})',
    'Producer("b:1", {"acks": "some"})',
    'Producer("b:1", {"group.id": "g"})',
    'Producer("b:1", acks_all=True)',
    'Producer({"bootstrap.servers": "b:1"})',
    'Producer("b:1").produce("t", b"v")',
    'Consumer("b:1", {"enable.auto.commit": "no"})',
    'Consumer("b:1", {"auto.offset.reset": "smallest"})',
    'Consumer("b:1", value_deserializer=bytes)',
    'Consumer("b:1").getone()',
    'Admin("b:1", {"default.api.timeout": 5})',
    'sync.Producer("b:1", {"liner.ms": 5})',
    'sync.Consumer("b:1", groupid="g")',
)
HEAD = "from oncelog import Admin, Consumer, Producer, sync\n"


def run(command: list[str], folder: Path) -> tuple[int, set[int], str]:
    """The checker's status, the lines that it finds fault with, and what it says."""
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )
    lines = [text.split(":") for text in done.stdout.splitlines() if "error" in text]
    found = {int(parts[1]) for parts in lines if len(parts) > 2 and parts[1].isdigit()}
    return done.returncode, found, done.stdout + done.stderr


def snippets(folder: Path) -> Path:
    (folder / "right.py").write_text(RIGHT)
    (folder / "wrong.py").write_text(HEAD + "\n".join(WRONG) + "\n")
    return folder


def judge(checker: list[str], folder: Path) -> None:
    status, _, text = run([*checker, "right.py"], snippets(folder))
    assert status == 0, text
    status, found, text = run([*checker, "wrong.py"], folder)
    assert status != 0
    missed = [line for number, line in enumerate(WRONG, 2) if number not in found]
    assert not missed, text


@pytest.mark.slow
def test_mypy_accepts_the_documented_style_and_finds_the_typo(tmp_path: Path) -> None:
    mypy = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent"]
    judge([*mypy, f"--cache-dir={SOURCES.parents[1] / '.cache' / 'mypy'}"], tmp_path)


@pytest.mark.slow
@pytest.mark.soak
def test_pyright_accepts_the_documented_style_and_finds_the_typo(tmp_path: Path) -> None:
    beside = str(Path(sys.executable).parent)
    pyright = shutil.which("basedpyright", path=beside) or shutil.which("pyright")
    if pyright is None:
        pytest.skip("neither basedpyright nor pyright is installed")
    settings = f'{{"typeCheckingMode": "standard", "extraPaths": ["{SOURCES.parent}"]}}'
    (tmp_path / "pyrightconfig.json").write_text(settings)
    judge([pyright, "--pythonpath", sys.executable], tmp_path)


@pytest.mark.parametrize(
    ("config", "role"),
    [
        (ProducerConfig, Role.PRODUCER),
        (ConsumerConfig, Role.CONSUMER),
        (AdminConfig, Role.ADMIN),
        (DriverConfig, Role.DRIVER),
    ],
)
def test_the_types_have_the_names_that_are_read(config: Any, role: Role) -> None:
    assert config.__annotations__.keys() == BY_ROLE[role].keys() | SECURITY_NAMES


def test_the_keywords_of_the_connection_layer_are_all_there() -> None:
    names: Iterable[str] = inspect.signature(Cluster).parameters
    assert ConnectionOptions.__annotations__.keys() == set(names) - {"bootstrap_servers"}
