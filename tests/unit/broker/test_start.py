"""What a start imports, and what it leaves for later."""

import subprocess
import sys
from pathlib import Path

import pytest

from oncelog.broker.coordination.coordinators import import_machines
from oncelog.controller.changes import ConfigChange, ConfigOperation
from oncelog.controller.events import AlterGroupConfigs
from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import OncelogError
from oncelog.core.ids import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from oncelog.core.limits import MACHINE_IMPORT_DELAY_MS
from oncelog.storage.identity import FolderMismatch
from tests.unit.broker.context import running

MODULES_PER_PIECE_COUNT_MAX = 12

LATER = (
    "oncelog.group.shard",
    "oncelog.transaction.shard",
    "oncelog.broker.apis.join_group",
    "oncelog.broker.partitions.following",
    "oncelog.broker.replication",
    "oncelog.replication.follower",
    "oncelog.protocol.messages.leave_group",
    "kio",
    "ctypes",
)


def test_a_start_imports_no_machine_and_no_rare_message() -> None:
    code = f"import sys, oncelog.broker.broker; print([n for n in {LATER} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = done.stdout.strip()
    assert imported == "[]"


class Naps:
    """A clock whose sleeps are noted and take no time."""

    def __init__(self) -> None:
        self.slept_ms: list[float] = []

    def now_ms(self) -> int:
        return 0

    def monotonic_ms(self) -> float:
        return 0.0

    async def sleep(self, delay_ms: float) -> None:
        self.slept_ms.append(delay_ms)


async def test_the_machines_are_imported_after_a_pause_in_pieces() -> None:
    clock = Naps()
    await import_machines(clock)
    assert clock.slept_ms[0] == MACHINE_IMPORT_DELAY_MS
    assert len(clock.slept_ms) > 2
    assert {"oncelog.group.shard", "oncelog.transaction.shard"} <= set(sys.modules)


def test_no_piece_of_that_import_brings_many_modules() -> None:
    code = (
        "import sys; from importlib import import_module;"
        "from oncelog.broker.coordination import coordinators;"
        "import oncelog.broker.broker;"
        "counts = [];"
        "names = coordinators._MACHINE_MODULES;"
        "[counts.append(-len(sys.modules)) or import_module(name) "
        "and counts.append(counts.pop() + len(sys.modules)) for name in names];"
        "print(max(counts), sum(counts))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    largest, total = map(int, done.stdout.split())
    assert largest <= MODULES_PER_PIECE_COUNT_MAX
    assert total > 2 * MODULES_PER_PIECE_COUNT_MAX


@pytest.mark.parametrize(
    ("key", "topic"),
    [
        ("transaction.state.log.num.partitions", TRANSACTION_STATE_TOPIC),
        ("offsets.topic.num.partitions", CONSUMER_OFFSETS_TOPIC),
    ],
)
async def test_another_partition_count_of_an_internal_topic_is_refused_with_the_reason(
    tmp_path: Path, key: str, topic: str
) -> None:
    async with running(tmp_path, {key: 3}) as context:
        await context.broker.controller.internal_topic(topic)
    with pytest.raises(OncelogError, match=f"{key}=4, but {topic} has 3 partitions.*set {key}=3"):
        async with running(tmp_path, {key: 4}):
            pass
    async with running(tmp_path, {key: 3}) as context:
        held = context.broker.image.topic(topic)
        assert held is not None
        assert len(held.partitions) == 3


def replace_in_metadata(folder: Path, written: bytes, damaged: bytes) -> None:
    (path,) = folder.rglob("metadata.sqlite")
    data = path.read_bytes()
    assert written in data
    path.write_bytes(data.replace(written, damaged))


def contents(folder: Path) -> dict[Path, bytes]:
    return {each: each.read_bytes() for each in folder.rglob("*") if each.is_file()}


@pytest.mark.parametrize(
    ("written", "damaged"),
    [(b"104857601", b"q04857601"), (b"segment.bytes", b"segmeot.bytes"), (b"46001", b"4600q")],
)
async def test_a_damaged_config_in_the_metadata_is_refused_before_any_file_changes(
    tmp_path: Path, written: bytes, damaged: bytes
) -> None:
    """A start that goes on would take another cleanup policy, say, for the topic's own."""
    async with running(tmp_path) as context:
        create = TopicToCreate("t", config={"segment.bytes": "104857601"})
        await context.broker.controller.create_topics([create])
        change = ConfigChange("consumer.session.timeout.ms", ConfigOperation.SET, "46001")
        await context.broker.controller.submit(AlterGroupConfigs("g", (change,)))
    replace_in_metadata(tmp_path, written, damaged)
    before = contents(tmp_path)
    for _ in range(2):
        with pytest.raises(OncelogError, match="the metadata is damaged, in the configs of"):
            async with running(tmp_path):
                pass
        assert before.items() <= contents(tmp_path).items()


async def test_a_lone_brokers_setting_becomes_the_clusters(tmp_path: Path) -> None:
    for value in (None, 2, 3):
        settings = {} if value is None else {"min.insync.replicas": value}
        async with running(tmp_path, settings) as context:
            stored = context.broker.image.cluster_config
            assert stored["min.insync.replicas"] == str(value or 1)
            assert context.broker.partitions._cluster_config == stored


def leave_only(folder: Path, kept: tuple[str, ...]) -> None:
    for path in folder.iterdir():
        if not path.name.startswith(kept):
            path.unlink()


@pytest.mark.parametrize("kept", [("oncelog.format",), ("oncelog.format", "metadata.sqlite")])
async def test_a_first_start_that_died_is_begun_again_in_the_stores_cluster(
    tmp_path: Path, kept: tuple[str, ...]
) -> None:
    """The folder is marked, then the store made and named, then the folder claimed."""
    async with running(tmp_path) as context:
        before = context.broker.image.cluster_id
    leave_only(tmp_path, kept)
    async with running(tmp_path) as context:
        assert (context.broker.image.cluster_id == before) is (len(kept) > 1)
        assert context.broker.logs.cluster_id == context.broker.image.cluster_id


@pytest.mark.damages
async def test_a_folder_with_logs_whose_identity_is_gone_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as context:
        await context.broker.controller.create_topics([TopicToCreate("t")])
    (tmp_path / "meta.properties").unlink()
    with pytest.raises(FolderMismatch, match=r"meta\.properties is gone"):
        async with running(tmp_path):
            pass


IN_A_BROKER = """
import sys, threading
from oncelog import EmbeddedCluster

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("oncelog") and threading.current_thread().name == "oncelog-broker":
            print(name)

sys.meta_path.insert(0, Watch())
from oncelog.sync import Producer
with EmbeddedCluster() as cluster, Producer(
    cluster.bootstrap_servers, transactional_id="t"
) as producer:
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"1")
    producer.commit_transaction()
"""


def test_brokers_of_a_cluster_find_their_modules_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IN_A_BROKER], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == []
