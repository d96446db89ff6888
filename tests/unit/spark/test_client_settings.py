"""What becomes of Kafka's settings that a user gives to the sink."""

import logging
from dataclasses import replace
from typing import Any

import pytest

from oncelog.spark.client_settings import settled
from oncelog.spark.errors import UsageError
from oncelog.spark.protocol_options import ProtocolOptions
from oncelog.spark.sink_options import SinkOptions, check_options
from tests.support.logged import said_by

OPTIONS = SinkOptions(
    bootstrap_servers="host:9092",
    protocol=ProtocolOptions("app"),
    topic="t",
    topics=None,
    max_tasks=None,
    batch_size=512 * 1024,
    compression_type="none",
    transaction_timeout_ms=300_000,
    progress_path=None,
)


def settle(given: dict[str, Any], **arguments: Any) -> SinkOptions:
    return settled(replace(OPTIONS, client_options=given, **arguments))


@pytest.mark.parametrize("name", ["compression.type", "kafka.compression.type", "compression_type"])
def test_the_compression_type_has_an_effect(name: str) -> None:
    options = settle({name: "zstd"})
    assert options.compression_type == "zstd"
    assert options.client_options == {}
    assert settle({name: "zstd"}, compression_type="zstd").compression_type == "zstd"


def test_a_running_query_waits_for_a_broker_unless_told_otherwise() -> None:
    assert settle({}).running_options() == {"first_contact_ms": None}
    own = {"oncelog.first.contact.ms": 3_000}
    assert settle(own).running_options() == own
    with pytest.raises(
        UsageError, match="Admin has no setting request_timout_ms: did you mean"
    ) as caught:
        settle({"request_timout_ms": 5})
    assert "Cluster" not in str(caught.value)


def test_batch_size_and_delivery_timeout_have_an_effect() -> None:
    options = settle({"batch.size": "16384", "delivery.timeout.ms": "30000"})
    assert (options.batch_size, options.client_options) == (16384, {})
    assert options.producer_options()["delivery_timeout_ms"] == 30_000
    assert settle({}).producer_options()["delivery_timeout_ms"] == 120_000
    short = settle({"delivery.timeout.ms": 30_000}, transaction_timeout_ms=5_000)
    assert short.producer_options()["delivery_timeout_ms"] == 5_000


@pytest.mark.parametrize(
    ("given", "arguments", "message"),
    [
        ({"compression.type": "gzip"}, {"compression_type": "zstd"}, "compression_type='zstd'"),
        ({"compression.type": "brotli"}, {}, "compression.type 'brotli' must be one of none"),
        ({"batch.size": 1}, {"batch_size": 2}, "batch.size=1 contradicts batch_size=2"),
        ({"batch.size": 0}, {}, "batch_size=0 must be at least 1"),
        ({"bootstrap.servers": "other:1"}, {}, "bootstrap.servers=other:1 contradicts"),
        ({"transactional.id": "mine"}, {}, "contradicts application_id='app'"),
        ({"transaction.timeout.ms": 1}, {}, "contradicts transaction_timeout_ms=300000"),
        ({"acks": "1"}, {}, "acks=1 .* leave it out"),
        ({"enable.idempotence": "false"}, {}, "enable.idempotence=false .* leave it out"),
        ({"retries": "0"}, {}, "retries=0 .* leave it out"),
        ({"partitioner.class": "my.Own"}, {}, "partitioner.class=my.Own .* column 'partition'"),
        ({"partitioner.ignore.keys": "true"}, {}, "partitioner.ignore.keys=true .* 'partition'"),
        ({"delivery.timeout.ms": "0"}, {}, "delivery.timeout.ms"),
        ({"delivery.timeout.ms": "soon"}, {}, "delivery.timeout.ms 'soon' must be a whole number"),
        ({"max.block.ms": "soon"}, {}, "max.block.ms 'soon' must be a whole number"),
        ({"linger.ms": 1, "kafka.linger.ms": 1}, {}, "linger.ms is given twice"),
        ({"request.timeout": 1}, {}, "did you mean request.timeout.ms"),
        ({"timeout_ms": 1}, {}, "timeout_ms"),
        ({"batchsize": 1}, {}, "batchsize"),
        ({}, {"bootstrap_servers": "host:port"}, "is not host:port"),
        ({}, {"batch_size": -1}, "batch_size=-1 must be at least 1"),
        ({}, {"max_tasks": 0}, "max_tasks=0 must be at least 1"),
        ({}, {"max_driver_rows": -1}, "max_driver_rows=-1 must be at least 0"),
        ({}, {"transaction_timeout_ms": 0}, "transaction_timeout_ms=0 must be at least 1"),
    ],
)
def test_what_cannot_have_its_effect_is_refused_in_a_sentence(
    given: dict[str, Any], arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message) as refused:
        check_options(settle(given, **arguments))
    assert "\n" not in str(refused.value)


def test_what_the_sink_does_anyway_is_accepted() -> None:
    options = settle(
        {
            "bootstrap.servers": "host:9092",
            "transactional.id": "app",
            "transaction.timeout.ms": "300000",
            "acks": "-1",
            "enable.idempotence": "true",
            "partitioner.class": "",
            "partitioner.ignore.keys": "false",
        }
    )
    assert options.client_options == {}


def test_timeouts_and_retries_stay_for_the_clients() -> None:
    given = {"kafka.max.block.ms": 1, "default.api.timeout.ms": 2, "retries": 3, "client_id": "me"}
    settings = settle(given).client_options
    assert settings == {
        "max.block.ms": 1,
        "default.api.timeout.ms": 2,
        "retries": 3,
        "client_id": "me",
    }


def test_settings_without_effect_are_named_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    given = {"linger.ms": "5", "buffer_memory": "1", "group.id": "g", "session.timeout.ms": "1"}
    with caplog.at_level(logging.INFO):
        assert settle(given).client_options == {}
    assert [record.getMessage() for record in said_by(caplog)] == [
        "without effect on the sink: client_options buffer.memory, group.id, linger.ms, "
        "session.timeout.ms"
    ]
