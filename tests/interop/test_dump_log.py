"""Apache's own kafka-dump-log reads our folders: the outside proof of our file formats (D5)."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from oncelog.transaction.states import TransactionState
from tests.support.broker import BrokerProcess
from tests.support.java_tools import run_tool
from tests.support.peer.kafka import PeerUnavailable, jars

pytestmark = [pytest.mark.interop, pytest.mark.slow]

DUMP = "org.apache.kafka.tools.DumpLogSegments"


def dump(paths: Path | list[Path], *options: str) -> str:
    """What the tool prints of files."""
    files = ",".join(map(str, paths if isinstance(paths, list) else [paths]))
    done = run_tool(DUMP, "--files", files, *options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def values(text: str) -> list[dict[str, Any]]:
    """The decoded values. From 4.4.0 on a field with its default may be left out."""
    return [json.loads(each)["data"] for each in re.findall(r" payload: (\{.*\})$", text, re.M)]


def settle_two_members(bootstrap_servers: str) -> None:
    """A group of the new protocol with a pattern and a static member, in all its records."""
    settings = {
        "bootstrap.servers": bootstrap_servers,
        "group.id": "members",
        "group.protocol": "consumer",
    }
    members = [Consumer(settings), Consumer({**settings, "group.instance.id": "static"})]
    members[0].subscribe(["^se.*"])
    members[1].subscribe(["seen"])
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    known = 0
    # There is one partition: the other member joins, and waits for nothing.
    while known < len(members) or not any(member.assignment() for member in members):
        for member in members:
            member.poll(0.05)
        try:
            known = len(admin.describe_consumer_groups(["members"])["members"].result(30).members)
        except KafkaException:
            known = 0  # Nobody has joined yet.
    for member in members:
        member.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log directory of a broker that was stopped after transactions and offset commits."""
    try:
        jars()
    except PeerUnavailable as reason:
        pytest.skip(f"Apache Kafka's tools cannot be had: {reason}")
    path = tmp_path_factory.mktemp("dump") / "data"
    with BrokerProcess(path, {"num.partitions": "1", "log.index.interval.bytes": "100"}) as broker:
        producer = Producer(
            {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "dumped"}
        )
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "readers",
                "enable.auto.commit": False,
            }
        )
        producer.init_transactions(30)
        for number in range(10):
            producer.begin_transaction()
            for _ in range(20):
                producer.produce("seen", f"value {number}".encode(), b"key")
            producer.flush(30)
            if number % 3 == 2:
                producer.abort_transaction(30)
                continue
            at = [TopicPartition("seen", 0, number)]
            producer.send_offsets_to_transaction(at, consumer.consumer_group_metadata(), 30)
            producer.commit_transaction(30)
        consumer.close()
        settle_two_members(broker.bootstrap_servers)
        producer.flush(30)
    return path


def first(folder: Path, pattern: str) -> Path:
    """The first non-empty file of the log directory that matches."""
    return next(path for path in sorted(folder.glob(pattern)) if path.stat().st_size)


def test_batches_markers_and_crcs_are_as_the_tool_expects(folder: Path) -> None:
    text = dump(first(folder, "seen-0/*.log"), "--deep-iteration")
    assert text.count("isvalid: true") >= 20
    assert "isvalid: false" not in text
    assert text.count("endTxnMarker: COMMIT") == 7
    assert text.count("endTxnMarker: ABORT") == 3


def test_indexes_are_sane(folder: Path) -> None:
    for pattern in ("seen-0/*.index", "seen-0/*.timeindex"):
        text = dump(first(folder, pattern), "--index-sanity-check")
        assert "passed sanity check" in text, text


def test_the_transaction_log_is_decoded(folder: Path) -> None:
    text = dump(first(folder, "__transaction_state-*/*.log"), "--transaction-log-decoder")
    never_written = {TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE}
    # From 4.4.0 on the tool prints the state's name, before it printed the number.
    named = {value.get("transactionStatus", "Empty") for value in values(text)}
    assert named == {state.label for state in set(TransactionState) - never_written}
    assert "dumped" in text


def test_the_offsets_topic_is_decoded(folder: Path) -> None:
    text = dump(first(folder, "__consumer_offsets-*/*.log"), "--offsets-decoder")
    assert "readers" in text
    assert "seen" in text


def test_the_records_of_consumer_groups_are_decoded(folder: Path) -> None:
    logs = sorted(folder.glob("__consumer_offsets-*/*.log"))
    text = dump([path for path in logs if path.stat().st_size], "--offsets-decoder")
    for kind in (3, 5, 6, 7, 8, 16):
        assert f'"type":"{kind}"' in text, kind
    for name in ("memberEpoch", "assignmentEpoch", "subscribedTopicNames", "metadataHash"):
        assert name in text
    assert '"assignmentEpochs"' in text
    assert "Failed to decode" not in text


def test_producer_snapshots_and_aborted_transactions_are_read(folder: Path) -> None:
    snapshot = dump(first(folder, "seen-0/*.snapshot"))
    assert "producerId" in snapshot
    aborted = dump(first(folder, "seen-0/*.txnindex"))
    assert aborted.lower().count("lastoffset") == 3
