"""A partition whose log has another format, among others: kept off line and as it is (D14)."""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from oncelog.cli.main import main
from oncelog.client import Admin
from oncelog.storage.checkpoints import parse_offsets
from oncelog.storage.files import REGISTER_NAME
from tests.corruption.reader import Served, read_partitions
from tests.support import data_folder
from tests.support.data_folder import MIXED, PLAIN, SETTINGS, TRIMMED
from tests.support.logged import said_by
from tests.support.old_formats import later_batch, message_set
from tests.support.scratch import scratch_folder
from tests.unit.broker.context import running

pytestmark = [pytest.mark.slow, pytest.mark.damages]

FIRST = f"{0:020d}.log"
CHECKPOINTS = (
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
)
LOGS = {
    "v0": lambda: message_set(0, 0, 4),
    "v1": lambda: message_set(1, 0, 4, "gzip") + message_set(1, 4, 1),
    "v3": lambda: later_batch(0, 2) + later_batch(2, 3),
}


@pytest.fixture(scope="module")
def made() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="oncelog-formats-", dir=scratch_folder()) as name:
        scratch = Path(name)
        data_folder.make(scratch / "clean", scratch / "killed")
        yield scratch


def with_other_format(made: Path, stop: str, form: str, scratch: Path) -> Path:
    """The folder with the first segment of `plain` as Apache Kafka would have it."""
    folder = scratch / "data"
    shutil.copytree(made / stop, folder)
    (folder / str(PLAIN) / FIRST).write_bytes(LOGS[form]())
    (folder / str(PLAIN) / REGISTER_NAME).unlink()
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def noted(folder: Path) -> list[int | None]:
    paths = [folder / name for name in CHECKPOINTS]
    found = [parse_offsets(path.read_bytes() if path.exists() else None) or {} for path in paths]
    return [offsets.get(PLAIN) for offsets in found]


async def served(folder: Path) -> dict[str, Served]:
    async with running(folder, SETTINGS) as context:
        client = await context.connect()
        found = await read_partitions(client, [MIXED, PLAIN, TRIMMED], 1)
    return {partition.topic: each for partition, each in found.items()}


@pytest.mark.parametrize("form", LOGS)
@pytest.mark.parametrize("stop", ["clean", "killed"])
async def test_the_others_are_served_and_its_files_stay_as_they_are(
    made: Path, tmp_path: Path, stop: str, form: str, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(made / stop, tmp_path / "sound")
    expected = await served(tmp_path / "sound")
    caplog.clear()
    folder = with_other_format(made, stop, form, tmp_path)
    files, offsets = contents(folder / str(PLAIN)), noted(folder)
    for _ in range(2):
        found = await served(folder)
        assert set(found["plain"].refused.values()) == {"kafka_storage_error"}
        assert not found["plain"].records
        for topic in ("mixed", "trimmed"):
            assert found[topic] == expected[topic]
        assert contents(folder / str(PLAIN)) == files
        assert noted(folder) == offsets
        (said,) = [each for each in said_by(caplog) if each.levelno == logging.ERROR]
        assert f"format {form}" in said.getMessage()
        caplog.clear()


async def test_its_topic_can_be_deleted(made: Path, tmp_path: Path) -> None:
    folder = with_other_format(made, "killed", "v1", tmp_path)
    async with running(folder, SETTINGS) as context:
        async with Admin(context.broker.bootstrap_servers) as admin:
            await admin.delete_topics([PLAIN.topic])
        assert not (folder / str(PLAIN)).exists()
    assert not (await served(folder))["mixed"].refused


@pytest.mark.parametrize("form", LOGS)
def test_the_tools_say_so_and_change_nothing(made: Path, tmp_path: Path, form: str) -> None:
    folder = with_other_format(made, "clean", form, tmp_path)
    before = {name: contents(folder / name) for name in (str(PLAIN), str(MIXED))}
    verified = CliRunner().invoke(main, ["log", "verify", str(folder)])
    assert verified.exit_code == 1
    (line,) = [line for line in verified.output.splitlines() if str(PLAIN) in line]
    assert f"records of format {form}" in line
    assert "1 thing is wrong" in verified.output
    for arguments in ([], ["--yes"]):
        repaired = CliRunner().invoke(main, ["log", "repair", str(folder), *arguments])
        assert repaired.exit_code == 1
        assert "this cannot be mended here" in repaired.output
        assert f"records of format {form}" in repaired.output
    dumped = CliRunner().invoke(main, ["log", "dump", str(folder / str(PLAIN) / FIRST)])
    assert dumped.exit_code == 0
    assert f"NOT READ: from byte 0 on it has records of format {form}" in dumped.output
    assert {name: contents(folder / name) for name in before} == before
