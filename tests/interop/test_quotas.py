"""Quotas, as stock clients and Apache's tools meet them."""

from __future__ import annotations

from typing import Any

import confluent_kafka
import pytest

from oncelog.client import ClientQuotaEntity
from oncelog.sync import Admin
from tests.interop.confluent import create_topic, fresh
from tests.interop.test_admin_tools import TOOLS, Tool, tool
from tests.support.java_tools import run_tool

__all__ = ["tool"]

pytestmark = [pytest.mark.interop, pytest.mark.slow]

CONFIGS = f"{TOOLS}.ConfigCommand"


@pytest.mark.usefixtures("java_class_path")
def test_kafka_configs_sets_shows_and_removes_quotas(tool: Tool) -> None:
    user = fresh("user")
    entity = ("--entity-type", "users", "--entity-name", user)
    both = (*entity, "--entity-type", "clients", "--entity-default")
    values = "producer_byte_rate=1024,request_percentage=12.5"
    assert "Completed updating" in tool(CONFIGS, "--alter", *both, "--add-config", values)
    shown = tool(CONFIGS, "--describe", *both)
    assert f"user-principal '{user}', the default client-id are" in shown
    assert "producer_byte_rate=1024.0" in shown
    assert "request_percentage=12.5" in shown
    refused = tool(CONFIGS, "--alter", *entity, "--add-config", "producer_byte_rate=0")
    assert "Quota producer_byte_rate must be greater than 0" in refused
    removed = "producer_byte_rate,request_percentage"
    assert "Completed updating" in tool(CONFIGS, "--alter", *both, "--delete-config", removed)
    assert "producer_byte_rate" not in tool(CONFIGS, "--describe", *both)


def test_librdkafka_is_told_that_it_is_throttled(bootstrap_servers: str) -> None:
    """Its records arrive all the same."""
    client_id = fresh("client")
    told: list[Any] = []
    entity = ClientQuotaEntity(client_id=client_id)
    with Admin(bootstrap_servers) as admin:
        admin.alter_client_quotas({entity: {"producer_byte_rate": 20_000}})
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "client.id": client_id,
            "throttle_cb": told.append,
        }
    )
    topic = create_topic(bootstrap_servers)
    delivered: list[int] = []

    def on_delivery(error: Any, message: Any) -> None:
        assert error is None
        delivered.append(message.offset())

    for _ in range(30):
        producer.produce(topic, b"v" * 10_000, on_delivery=on_delivery)
        producer.flush(30)
        if told:
            break
    assert [event.throttle_time > 0 for event in told] == [True] * len(told) != []
    assert delivered == list(range(len(delivered)))
    with Admin(bootstrap_servers) as admin:
        admin.alter_client_quotas({entity: {"producer_byte_rate": None}})
        assert entity not in admin.describe_client_quotas()


@pytest.mark.soak
@pytest.mark.usefixtures("java_class_path")
def test_kafka_producer_perf_test_keeps_to_a_quota(
    tool: Tool,
    bootstrap_servers: str,
) -> None:
    topic, client_id = create_topic(bootstrap_servers), fresh("client")
    entity = ("--entity-type", "clients", "--entity-name", client_id)
    tool(CONFIGS, "--alter", *entity, "--add-config", "producer_byte_rate=100000")
    size = ("--num-records", "3000", "--record-size", "1000", "--throughput", "-1")
    done = run_tool(
        f"{TOOLS}.ProducerPerformance",
        *("--topic", topic, *size),
        *("--producer-props", f"bootstrap.servers={bootstrap_servers}", f"client.id={client_id}"),
    )
    assert "3000 records sent" in done.stdout, done.stderr
    # 3 MB, of which the first megabyte is what ten windows hold.
    rate = float(done.stdout.split("records/sec (")[1].split(" MB/sec")[0])
    assert 0.05 < rate < 0.2
    tool(CONFIGS, "--alter", *entity, "--delete-config", "producer_byte_rate")
