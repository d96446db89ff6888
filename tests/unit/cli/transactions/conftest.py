"""A broker of this process whose partitions the tests can reach."""

from collections.abc import Iterator

import pytest

from oncelog import EmbeddedBroker


@pytest.fixture(scope="module")
def embedded() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(config={"auto.create.topics.enable": False}) as broker:
        yield broker


@pytest.fixture(scope="module")
def bootstrap_server(embedded: EmbeddedBroker) -> str:
    return embedded.bootstrap_servers
