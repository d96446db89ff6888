"""A newcomer's path, timed: ``python -m tests.support.newcomer``, from an empty folder.

An environment, `pip install` of the wheel with pip's cache warm, a first program that writes a
record in a transaction and reads it back; then pytest with the plugin, up to the end of its first
test.
"""

import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from tests.support.fresh_python import FreshPython, StepFailed
from tests.support.install_size import ROOT, folder_bytes
from tests.support.release import build

RECORD_S_MAX = 60
FIRST_TEST_S_MAX = 1.0
PROGRAM = """\
from oncelog import EmbeddedBroker, TopicPartition, sync

with EmbeddedBroker() as broker:
    with sync.Producer(broker.bootstrap_servers, transactional_id="first") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("greetings", b"hello")
        producer.commit_transaction()
    with sync.Consumer(broker.bootstrap_servers) as consumer:
        consumer.assign([TopicPartition("greetings", 0)])
        print([record.value for record in consumer.poll(timeout_ms=5000)])
"""
TESTS = {
    "test_first.py": """\
from oncelog import TopicPartition, sync


def test_a_record_comes_back(oncelog_broker, oncelog_topic):
    with sync.Producer(oncelog_broker.bootstrap_servers) as producer:
        producer.send(oncelog_topic, b"hello").result()
    with sync.Consumer(oncelog_broker.bootstrap_servers) as consumer:
        consumer.assign([TopicPartition(oncelog_topic, 0)])
        assert [record.value for record in consumer.poll(timeout_ms=5000)] == [b"hello"]
""",
    "conftest.py": """\
import time
from pathlib import Path

begun = 0.0


def pytest_collection_finish():
    global begun
    begun = time.monotonic()


def pytest_runtest_logreport(report):
    if report.when == "call":
        Path("seconds").write_text(str(time.monotonic() - begun))
""",
}
"""Their time is taken by pytest's own hooks: its start and its end are not ours."""


@dataclass(frozen=True, slots=True)
class Newcomer:
    """What it took."""

    install_s: float
    record_s: float
    """From the empty folder to the committed record read back, the install included."""
    first_test_s: float
    """From the end of pytest's collection to the end of the first test."""
    install_bytes: int

    @property
    def is_quick(self) -> bool:
        """Whether it stays within the bounds."""
        return self.record_s <= RECORD_S_MAX and self.first_test_s <= FIRST_TEST_S_MAX


def walk(wheel: Path, folder: Path) -> Newcomer:
    """The path, with pip's cache as it is. Raises `StepFailed`."""
    begun = time.monotonic()
    python = FreshPython.made(folder / "environment")
    before = folder_bytes(python.packages)
    python.install(wheel)
    install_s = time.monotonic() - begun
    (folder / "first.py").write_text(PROGRAM)
    told = python.run("python", "first.py", cwd=folder).strip()
    record_s = time.monotonic() - begun
    if told != "[b'hello']":
        raise StepFailed(f"the first program printed {told}")
    size = folder_bytes(python.packages) - before
    return Newcomer(install_s, record_s, first_test_s(python, folder / "tests"), size)


def first_test_s(python: FreshPython, folder: Path) -> float:
    """Seconds of the first test behind pytest's collection. Raises `StepFailed`."""
    folder.mkdir()
    for name, text in TESTS.items():
        (folder / name).write_text(text)
    python.install("pytest")
    python.run("python", "-m", "pytest", "-q", cwd=folder)
    return float((folder / "seconds").read_text())


def warm(wheel: Path, folder: Path) -> None:
    """Have pip's cache hold what the wheel needs."""
    FreshPython.made(folder).install(wheel, "pytest")


def main() -> int:
    """Exit code 0 when all of it stays within its bounds."""
    console = Console()
    with tempfile.TemporaryDirectory(prefix="oncelog-newcomer-") as name:
        folder = Path(name)
        _, wheel = build(ROOT, folder)
        warm(wheel, folder / "warm")
        empty = folder / "empty"
        empty.mkdir()
        found = walk(wheel, empty)
    console.print(
        f"installed after {found.install_s:.1f} s, a committed record read back after "
        f"{found.record_s:.1f} s (at most {RECORD_S_MAX}); first test {found.first_test_s:.2f} s "
        f"after the collection (at most {FIRST_TEST_S_MAX:.0f})"
    )
    return 0 if found.is_quick else 1


if __name__ == "__main__":
    sys.exit(main())
