"""The table of metrics, and what a broker answers with it."""

import re
from pathlib import Path
from typing import cast

import pytest

from oncelog.broker.apis.context import Context
from oncelog.broker.metrics import METRICS, Parts, lines
from oncelog.broker.metrics.metric import OURS, MetricType
from oncelog.cli.metrics import MetricValue, parse
from oncelog.core.ids import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages import add_partitions_to_txn as add_partitions
from oncelog.protocol.messages import txn_offset_commit
from oncelog.protocol.messages.create_topics import CreatableTopic
from oncelog.protocol.messages.delete_topics import DeleteTopicState
from oncelog.protocol.messages.offset_commit import (
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.support.metrics import DOCUMENT, document
from tests.unit.broker.context import Client, Running, running
from tests.unit.broker.raw import add_partition, fetch, init_producer, produce
from tests.unit.broker.support import batch

BY_TOPIC = "kafka_server_brokertopicmetrics_"
ERRORS = "kafka_network_requestmetrics_errors_total"


async def create(client: Client, topic: str) -> None:
    new = CreatableTopic(name=topic, num_partitions=1, replication_factor=1)
    answer = await client.ask(ApiKey.CREATE_TOPICS, topics=(new,), timeout_ms=1000)
    assert answer.topics[0].error_code == 0


def values_of(context: Running) -> dict[tuple[str, tuple[str, ...]], float]:
    """Every value, by metric and labels."""
    broker = context.broker
    inside = cast(Context, broker.dispatcher._context)
    parts = Parts(inside, broker.dispatcher, broker.membership)
    found: list[MetricValue] = list(parse("".join(lines(METRICS, parts))))
    return {(value.name, tuple(value.labels.values())): value.value for value in found}


def test_every_metric_has_a_name_of_its_own_that_prometheus_takes() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    for metric in METRICS:
        assert re.fullmatch(r"[a-z][a-z0-9_]*", metric.name), metric.name
        is_usual = metric.mbean.startswith("none, as ")
        is_process = is_usual and metric.name.startswith("process_")
        assert is_process or metric.name.startswith(
            "oncelog_" if metric.mbean == OURS else "kafka_"
        )


def test_every_metric_of_kafkas_is_named_as_its_mbean() -> None:
    for metric in METRICS:
        if metric.mbean == OURS or "-metrics" in metric.mbean or metric.mbean.startswith("none"):
            continue
        type_name = re.findall(r"(?:type|name)=([A-Za-z]+)", metric.mbean)
        domain = metric.mbean.partition(":")[0]
        stem = "_".join([domain.replace(".", "_"), *type_name]).lower().removesuffix("persec")
        assert metric.name.startswith(stem), metric


def test_what_only_grows_is_a_counter() -> None:
    for metric in METRICS:
        if metric.name.endswith("_total"):
            assert metric.kind is MetricType.COUNTER, metric.name


def test_the_document_is_what_the_table_makes() -> None:
    assert DOCUMENT.read_text() == document(), "run python -m tests.support.metrics"


async def test_a_topic_counts_what_is_appended_and_what_is_given_to_consumers(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as context:
        client = await context.connect()
        await create(client, "t")
        await produce(client, 9, batch(3))
        await produce(client, 9, batch(2))
        given = await fetch(client)
        values = values_of(context)
        assert values[BY_TOPIC + "messagesin_total", ("t",)] == 5
        assert values[BY_TOPIC + "totalproducerequests_total", ("t",)] == 2
        size = len(batch(3)) + len(batch(2))
        assert values[BY_TOPIC + "bytesin_total", ("t",)] == size
        assert values[BY_TOPIC + "bytesout_total", ("t",)] == len(given.records) == size
        assert values["kafka_log_log_logendoffset", ("t", "0")] == 5


async def test_a_duplicate_is_not_counted_twice_and_a_refusal_is_a_failure(tmp_path: Path) -> None:
    async with running(tmp_path) as context:
        client = await context.connect()
        await create(client, "t")
        for _ in range(2):
            await produce(client, 9, batch(3, producer_id=7, epoch=0, sequence=0))
        await produce(client, 9, batch(1, producer_id=7, epoch=0, sequence=9))
        values = values_of(context)
        assert values[BY_TOPIC + "messagesin_total", ("t",)] == 3
        assert values[BY_TOPIC + "failedproducerequests_total", ("t",)] == 1
        assert values[ERRORS, ("Produce", "OUT_OF_ORDER_SEQUENCE_NUMBER")] == 1
        assert values["kafka_server_replicamanager_produceridcount", ()] == 1


async def test_errors_are_counted_wherever_they_stand_in_a_response(tmp_path: Path) -> None:
    """As Kafka's `errorCounts()`: each topic, partition or group of a response by itself."""
    async with running(tmp_path) as context:
        client = await context.connect()
        await create(client, "t")
        for topic in (TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC):
            await context.broker.controller.internal_topic(topic)
        add = add_partitions.AddPartitionsToTxnTransaction(
            transactional_id="id",
            producer_id=999,
            topics=(add_partitions.AddPartitionsToTxnTopic(name="t", partitions=(0, 1, 2)),),
        )
        await client.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, transactions=(add,))
        commit = txn_offset_commit.TxnOffsetCommitRequestTopic(
            name="gone",
            partitions=tuple(
                txn_offset_commit.TxnOffsetCommitRequestPartition(partition_index=index)
                for index in range(2)
            ),
        )
        await client.ask(
            ApiKey.TXN_OFFSET_COMMIT, 3, transactional_id="id", group_id="", topics=(commit,)
        )
        await client.ask(ApiKey.ADD_OFFSETS_TO_TXN, 3, transactional_id="none", group_id="g")
        await client.ask(ApiKey.DESCRIBE_GROUPS, groups=("a", "b"))
        again = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        await client.ask(ApiKey.CREATE_TOPICS, topics=(again,), timeout_ms=1000)
        values = values_of(context)
        found = {labels: count for (name, labels), count in values.items() if name == ERRORS}
        assert found == {
            ("AddPartitionsToTxn", "OPERATION_NOT_ATTEMPTED"): 1,
            ("AddPartitionsToTxn", "UNKNOWN_TOPIC_OR_PARTITION"): 2,
            ("TxnOffsetCommit", "UNKNOWN_TOPIC_OR_PARTITION"): 2,
            ("AddOffsetsToTxn", "INVALID_PRODUCER_ID_MAPPING"): 1,
            ("DescribeGroups", "GROUP_ID_NOT_FOUND"): 2,
            ("CreateTopics", "TOPIC_ALREADY_EXISTS"): 1,
        }


async def test_a_deleted_topic_goes_and_the_sum_of_all_stays(tmp_path: Path) -> None:
    async with running(tmp_path) as context:
        client = await context.connect()
        await create(client, "t")
        await produce(client, 9, batch(3))
        state = DeleteTopicState(name="t", topic_id=None)
        await client.ask(ApiKey.DELETE_TOPICS, 6, topics=(state,), timeout_ms=1000)
        values = values_of(context)
        assert (BY_TOPIC + "messagesin_total", ("t",)) not in values
        assert values[BY_TOPIC + "messagesin_total", ()] == 3


async def test_requests_are_counted_by_version_and_timed_where_metrics_are_on(
    tmp_path: Path,
) -> None:
    config = {"oncelog.metrics.address": "127.0.0.1:0"}
    async with running(tmp_path, config) as context:
        client = await context.connect()
        for version in (3, 4, 4):
            await client.ask(
                ApiKey.API_VERSIONS,
                version,
                client_software_name="a",
                client_software_version="1",
            )
        values = values_of(context)
        requests = "kafka_network_requestmetrics_requests_total"
        assert values[requests, ("ApiVersions", "3")] == 1
        assert values[requests, ("ApiVersions", "4")] == 2
        assert values["kafka_network_requestmetrics_totaltimems_count", ("ApiVersions",)] == 3
        assert values["kafka_network_requestmetrics_requestbytes_sum", ("ApiVersions",)] > 0


async def test_nothing_is_timed_where_metrics_are_off(tmp_path: Path) -> None:
    async with running(tmp_path) as context:
        client = await context.connect()
        await create(client, "t")
        values = values_of(context)
        assert values["kafka_network_requestmetrics_totaltimems_count", ("CreateTopics",)] == 0


async def test_bytes_of_the_sockets_are_those_that_the_client_sent_and_got(tmp_path: Path) -> None:
    async with running(tmp_path) as context:
        client = await context.connect()
        await client.send(b"\x00\x12\x00\x00\x00\x00\x00\x01\x00\x01a")
        frame = await client.receive()
        assert frame is not None
        values = values_of(context)
        sockets = "kafka_server_socket_server_metrics_"
        assert values[sockets + "incoming_byte_total", ("PLAINTEXT",)] == 4 + 11
        assert values[sockets + "outgoing_byte_total", ("PLAINTEXT",)] == 4 + len(frame)
        assert values[sockets + "connection_count", ("PLAINTEXT",)] == 1


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_every_metric_says_its_unit_and_meaning(metric: object) -> None:
    assert getattr(metric, "unit", "")
    assert getattr(metric, "meaning", "").endswith((".", "hangs."))


async def test_the_coordinators_tell_what_they_hold(tmp_path: Path) -> None:
    config = {"transaction.state.log.num.partitions": 1, "offsets.topic.num.partitions": 1}
    async with running(tmp_path, config) as context:
        client = await context.connect()
        await create(client, "t")
        for topic in (TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC):
            await context.broker.controller.internal_topic(topic)
        given = await init_producer(client, "open", transaction_timeout_ms=60_000)
        await init_producer(client, "empty", transaction_timeout_ms=60_000)
        await add_partition(client, "open", given.producer_id, given.producer_epoch)
        stranger = batch(producer_id=99, epoch=0, sequence=0, transactional=True)
        await produce(client, 11, stranger, transactional_id="nobody")
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        topics = (OffsetCommitRequestTopic(name="t", partitions=(partition,)),)
        await client.ask(ApiKey.OFFSET_COMMIT, 8, group_id="g", topics=topics)
        await client.ask(
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            1,
            group_id="new",
            member_id="m",
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=("t",),
            topic_partitions=(),
        )
        values = values_of(context)
        assert values["oncelog_transactional_ids", ("Ongoing",)] == 1
        assert values["oncelog_transactional_ids", ("Empty",)] == 1
        assert values["oncelog_oldest_open_transaction_seconds", ()] >= 0
        failures = "kafka_server_addpartitionstotxnmanager_verificationfailurerate_count"
        assert values[failures, ()] == 1
        times = "kafka_server_addpartitionstotxnmanager_verificationtimems_count"
        assert values[times, ()] == 1
        counts = "kafka_server_group_coordinator_metrics_"
        assert values[counts + "offset_commit_count", ()] == 1
        assert values[counts + "consumer_group_rebalance_count", ()] == 1
        assert values[counts + "group_completed_rebalance_count", ()] == 0
        groups = "kafka_coordinator_group_groupmetadatamanager_"
        assert values[groups + "numoffsets", ()] == 1
        assert values["kafka_server_group_coordinator_metrics_group_count", ("classic",)] == 1
        consumer_groups = "kafka_server_group_coordinator_metrics_consumer_group_count"
        states = {state: values[consumer_groups, (state,)] for state in ("Empty", "Stable")}
        assert states == {"Empty": 0, "Stable": 1}
        markers = "kafka_coordinator_transaction_transactionmarkerchannelmanager_"
        assert values[markers + "unknowndestinationqueuesize", ()] == 0
    async with running(tmp_path, config) as context:
        await context.broker.transactions.loaded()
        values = values_of(context)
        loads = "kafka_server_transaction_coordinator_metrics_partition_load_time_"
        assert values[loads + "max", ()] >= values[loads + "avg", ()] > 0
