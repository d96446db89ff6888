"""Three brokers restart in turn under the load of stock clients, and no application has an error.

Whatever reaches an application from Apache Kafka's three brokers may reach it from ours.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.broker import broker_processes
from tests.support.peer.cluster import BrokerCluster
from tests.support.peer.kafka import KafkaPeer, PeerUnavailable, jars, kafka_peers
from tests.support.rolling import LIBRARIES, SETTINGS, Report, roll

pytestmark = [pytest.mark.interop, pytest.mark.soak]

FEW_READ = 20
KAFKA_TELLS = ("COORDINATOR_LOAD_IN_PROGRESS",)
"""What librdkafka's synchronous commits get from Apache Kafka in some runs."""


def check(report: Report, may_tell: tuple[str, ...] = ()) -> None:
    assert [each for each in report.problems if not any(code in each for code in may_tell)] == []
    assert report.findings == []
    assert all(count > FEW_READ for count in report.counts.values()), report.counts


@pytest.mark.timeout(120)
def test_librdkafka_sees_no_error_in_a_rolling_restart(tmp_path: Path) -> None:
    with BrokerCluster(broker_processes(tmp_path, 3, SETTINGS)) as cluster:
        check(roll(cluster, tmp_path, ["confluent-kafka"]))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("is_kafka", [False, True], ids=["oncelog", "kafka"])
def test_four_clients_see_no_error_in_a_rolling_restart(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, is_kafka: bool
) -> None:
    try:
        jars()
    except PeerUnavailable as reason:
        pytest.skip(f"the Java client cannot be had: {reason}")
    made = kafka_peers if is_kafka else broker_processes
    # What Apache Kafka leaves is not ours to judge.
    folder = tmp_path_factory.mktemp("kafka") if is_kafka else tmp_path
    brokers = made(folder, 3, SETTINGS)
    for each in brokers:
        if isinstance(each, KafkaPeer):
            each.prepare()
    with BrokerCluster(brokers) as cluster:
        check(roll(cluster, folder, LIBRARIES), KAFKA_TELLS if is_kafka else ())
