"""One `oncelog serve` process for all tests with stock clients."""

from collections.abc import Iterator

import pytest

from tests.support.broker import BrokerProcess

SETTINGS = {
    # The defaults suit a cluster's life; tests have no time for them.
    "group.initial.rebalance.delay.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
}


@pytest.fixture(scope="session")
def bootstrap_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the shared broker is reached. Tests use topics, groups and ids of their own."""
    with BrokerProcess(tmp_path_factory.mktemp("interop") / "data", SETTINGS) as broker:
        yield broker.bootstrap_servers
