"""kafka-go's `Client`, whose transactions go over a pool of connections (`go/pooled.go`)."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.interop.confluent import committed, create_topic, fresh, read_all
from tests.support.go_program import BUILD_TIMEOUT_S, GoUnavailable, built

# Fetching and building the module takes half a minute on a fresh machine.
pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.soak]

SOURCE = Path(__file__).with_name("go")
PARTITIONS = 4
TRANSACTIONS = 20
RUN_TIMEOUT_S = 60


@pytest.fixture(scope="module")
def program() -> Path:
    """The compiled program; a skip with the reason where Go or the module cannot be had."""
    try:
        return built(SOURCE)
    except GoUnavailable as reason:
        pytest.skip(f"kafka-go cannot be had: {reason}")


@pytest.mark.timeout(BUILD_TIMEOUT_S + RUN_TIMEOUT_S)
def test_each_transaction_of_a_pool_of_connections_commits(
    program: Path, bootstrap_servers: str
) -> None:
    topic, group = create_topic(bootstrap_servers, PARTITIONS), fresh("group")
    arguments = [topic, str(PARTITIONS), group, fresh("pooled"), str(TRANSACTIONS)]
    done = subprocess.run(
        [program, bootstrap_servers, *arguments],
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (connections,) = re.findall(r"^connections (\d+)$", done.stdout, re.MULTILINE)
    assert int(connections) > 1, "requests that share one connection show nothing"
    expected = {
        b"%d-%d" % (count, partition)
        for count in range(1, TRANSACTIONS + 1)
        for partition in range(PARTITIONS)
    }
    assert sorted(read_all(bootstrap_servers, topic, PARTITIONS)) == sorted(expected)
    assert committed(bootstrap_servers, group, topic) == TRANSACTIONS
