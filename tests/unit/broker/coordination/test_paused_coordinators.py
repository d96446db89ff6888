"""A coordinator that stood still, wakes up, and does not know yet that another took its place.

What it answers first is what a client had asked it meanwhile.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from oncelog.client import FencedError, OffsetAndMetadata, TopicPartition
from oncelog.core.errors import ErrorCode
from oncelog.protocol import codec
from oncelog.protocol.api import ADVERTISED, ApiKey
from oncelog.protocol.messages.end_txn import EndTxnRequest
from oncelog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from oncelog.sync import Admin, Consumer, Producer
from oncelog.testing import ControlledCluster

pytestmark = pytest.mark.slow

PLACE = TopicPartition("t", 0)
WAIT_S = 20.0


@pytest.fixture
def cluster() -> Iterator[ControlledCluster]:
    with ControlledCluster() as made:
        made.create_topic(PLACE.topic, 1)
        yield made


class Question:
    """A request to one broker, which is sent before it can be answered."""

    def __init__(
        self, cluster: ControlledCluster, broker_id: int, api: ApiKey, request: Any
    ) -> None:
        host, _, port = cluster.broker(broker_id).bootstrap_servers.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), WAIT_S)
        self._api, self._version = api, min(ADVERTISED[api].max, 9)
        frame = codec.encode_request(api, self._version, 1, "test", request)
        self._frame = len(frame).to_bytes(4, "big") + frame

    def send(self) -> None:
        self._socket.sendall(self._frame)

    def answer(self) -> Any:
        with self._socket, self._socket.makefile("rb") as file:
            frame = file.read(int.from_bytes(file.read(4), "big"))
        _, offset = codec.parse_response_header(self._api, self._version, frame)
        return codec.parse_response(self._api, self._version, frame, offset)


def commit(servers: str, offset: int) -> None:
    with Admin(servers) as admin:
        admin.alter_group_offsets("g", {PLACE: OffsetAndMetadata(offset)})


def committed(servers: str) -> int:
    with Admin(servers) as admin:
        return admin.group_offsets("g")[PLACE].offset


def others(cluster: ControlledCluster, broker_id: int) -> str:
    return ",".join(
        cluster.broker(each).bootstrap_servers for each in (1, 2, 3) if each != broker_id
    )


def test_a_coordinator_of_groups_that_wakes_up_tells_no_old_offset(
    cluster: ControlledCluster,
) -> None:
    """Kafka's does, and whoever believes it reads a batch twice."""
    commit(cluster.bootstrap_servers, 1)
    paused = cluster.coordinator_of("g")
    assert paused is not None
    topics = (OffsetFetchRequestTopics(name=PLACE.topic, partition_indexes=(0,)),)
    request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g", topics=topics),))
    question = Question(cluster, paused, ApiKey.OFFSET_FETCH, request)
    with cluster.pause(paused):
        cluster.expire_session(paused)
        cluster.wait_until(lambda: cluster.coordinator_of("g"))
        commit(others(cluster, paused), 2)
        question.send()
    (group,) = question.answer().groups
    told = [each.committed_offset for topic in group.topics for each in topic.partitions]
    assert group.error_code is not ErrorCode.none or told == [2]
    assert committed(cluster.bootstrap_servers) == 2


@pytest.mark.parametrize("version", [1, 2])
def test_a_coordinator_of_transactions_that_wakes_up_ends_none(
    cluster: ControlledCluster, version: int
) -> None:
    """INV-4, INV-5: its PREPARE is of a former epoch, and is never committed."""
    servers = cluster.bootstrap_servers
    with Producer(servers, transactional_id="tx", transaction_version_max=version) as zombie:
        zombie.init_transactions()
        zombie.begin_transaction()
        zombie.send(PLACE.topic, b"zombie", partition=0).result(WAIT_S)
        paused = cluster.coordinator_of(transactional_id="tx")
        assert paused is not None
        with Admin(servers) as admin:
            known = admin.describe_transaction("tx")
        ids = {"producer_id": known.producer_id, "producer_epoch": known.producer_epoch}
        request = EndTxnRequest(transactional_id="tx", committed=True, **ids)
        question = Question(cluster, paused, ApiKey.END_TXN, request)
        with cluster.pause(paused):
            cluster.expire_session(paused)
            cluster.wait_until(lambda: cluster.coordinator_of(transactional_id="tx"))
            with Producer(others(cluster, paused), transactional_id="tx") as other:
                other.init_transactions()
                other.begin_transaction()
                other.send(PLACE.topic, b"other", partition=0).result(WAIT_S)
                other.commit_transaction()
            question.send()
        assert question.answer().error_code is not ErrorCode.none
        with pytest.raises(FencedError):
            zombie.commit_transaction()
    with Consumer(servers) as consumer:
        consumer.assign([PLACE])
        consumer.seek(PLACE, 0)
        found: list[bytes | None] = []
        while len(found) < 1:
            found += [record.value for record in consumer.poll(1_000)]
    assert found == [b"other"]
