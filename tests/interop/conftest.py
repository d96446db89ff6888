"""Which broker the interop suite speaks to.

By default one `oncelog serve` process for all tests. With ``--bootstrap-server HOST:PORT`` (or
ONCELOG_TEST_BOOTSTRAP_SERVERS) any running cluster, with ``--peer kafka`` a fresh Apache Kafka;
then the tests that start or kill brokers of their own are left out.
"""

import os
from collections.abc import Iterator

import pytest

from tests.support.broker import BrokerProcess
from tests.support.interop import CLIENTS, Client
from tests.support.peer import KafkaPeer, PeerUnavailable, jars
from tests.support.sound_folders import faults

SETTINGS = {
    # The defaults suit a cluster's life; tests have no time for them.
    "group.initial.rebalance.delay.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.assignment.interval.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
}

# Fixtures whose tests speak to the shared broker, whichever it is.
SHARED = frozenset({"bootstrap_servers", "servers", "client"})


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("interop")
    group.addoption("--bootstrap-server", metavar="HOST:PORT", help="test this running cluster")
    group.addoption("--peer", choices=["kafka"], help="start Apache Kafka and test that")


def elsewhere(config: pytest.Config) -> str | None:
    """Address of a running cluster to test, if one is named."""
    given: str | None = config.getoption("--bootstrap-server", default=None)
    return given or os.environ.get("ONCELOG_TEST_BOOTSTRAP_SERVERS")


def is_oncelog(config: pytest.Config) -> bool:
    """Whether the tests speak to a broker of ours that they started."""
    return elsewhere(config) is None and config.getoption("--peer", default=None) is None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if is_oncelog(config):
        return
    ours = [item for item in items if not SHARED.intersection(getattr(item, "fixturenames", ()))]
    config.hook.pytest_deselected(items=ours)
    items[:] = [item for item in items if item not in ours]


@pytest.fixture(scope="session")
def bootstrap_servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Where the shared broker is reached. Tests use topics, groups and ids of their own."""
    running = elsewhere(request.config)
    folder = tmp_path_factory.mktemp("interop")
    if running is not None:
        yield running
    elif request.config.getoption("--peer", default=None) == "kafka":
        with KafkaPeer(folder / "kafka", SETTINGS) as peer:
            yield peer.bootstrap_servers
    else:
        with BrokerProcess(folder / "data", SETTINGS) as broker:
            yield broker.bootstrap_servers
        assert faults(folder) == []


@pytest.fixture(scope="session")
def java_class_path() -> str:
    """Apache Kafka's jars; a skip with the reason where they cannot be had."""
    try:
        return jars()
    except PeerUnavailable as reason:
        pytest.skip(f"Apache Kafka's jars cannot be had: {reason}")


@pytest.fixture(params=sorted(CLIENTS))
def client(request: pytest.FixtureRequest, bootstrap_servers: str) -> Iterator[Client]:
    """Each stock Python client in turn."""
    made = CLIENTS[request.param](bootstrap_servers)
    yield made
    made.close()
