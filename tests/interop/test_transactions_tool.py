"""Apache's ``kafka-transactions`` beside ``oncelog transactions``: both see and end the same."""

from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from oncelog import EmbeddedBroker
from oncelog.cli.main import main
from tests.support.interop import fresh
from tests.support.java_tools import run_tool
from tests.unit.cli.transactions.scene import hang, open_transaction

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.usefixtures("java_class_path"),
]

TOOL = "org.apache.kafka.tools.TransactionsCommand"


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    """A broker whose partitions the test can reach: only there can a transaction hang."""
    with EmbeddedBroker() as started:
        yield started


def theirs(broker: EmbeddedBroker, *arguments: str) -> list[list[str]]:
    """The rows of the tool's table."""
    done = run_tool(TOOL, "--bootstrap-server", broker.bootstrap_servers, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return [line.split() for line in done.stdout.splitlines()[1:]]


def ours(broker: EmbeddedBroker, *arguments: str) -> list[list[str]]:
    environment = {"ONCELOG_BOOTSTRAP_SERVER": broker.bootstrap_servers}
    result = CliRunner().invoke(main, ["transactions", *arguments], env=environment)
    assert result.exit_code == 0, result.stderr
    return [line.split("\t") for line in result.stdout.splitlines()]


def test_both_find_the_same_hanging_transaction_and_end_it(broker: EmbeddedBroker) -> None:
    topic = fresh("hanging")
    for name in (topic, f"{topic}-too"):
        assert (
            CliRunner()
            .invoke(
                main, ["topics", "create", name, "--bootstrap-server", broker.bootstrap_servers]
            )
            .exit_code
            == 0
        )
    open_transaction(broker.bootstrap_servers, fresh("healthy"), topic)
    hang(broker, topic, producer_id=9300)
    hang(broker, f"{topic}-too", producer_id=9301)
    search = ("find-hanging", "--broker-id", "1", "--max-transaction-timeout", "0")
    found = theirs(broker, *search)
    assert sorted(found) == sorted(ours(broker, *search))
    assert [line[:3] for line in sorted(found)] == [
        [topic, "0", "9300"],
        [f"{topic}-too", "0", "9301"],
    ]
    place = ("--partition", "0", "--start-offset")
    theirs(broker, "abort", "--topic", topic, *place, sorted(found)[0][5])
    ours(broker, "abort", "--topic", f"{topic}-too", *place, "0")
    assert theirs(broker, *search) == ours(broker, *search) == []


def test_filters_list_the_same_ids(broker: EmbeddedBroker) -> None:
    made = CliRunner().invoke(
        main, ["topics", "create", "t", "--bootstrap-server", broker.bootstrap_servers]
    )
    assert made.exit_code == 0
    for id_ in ("orders-1", "orders-2", "bills-1"):
        open_transaction(broker.bootstrap_servers, id_, "t")
    for filters in (
        ("--transactional-id-pattern", "orders-.*"),
        ("--duration-filter", "0"),
        ("--duration-filter", "3600000"),
    ):
        # Behind the tool's columns we show when an id expires.
        listed = [row[:4] for row in ours(broker, "list", *filters)]
        assert sorted(theirs(broker, "list", *filters)) == sorted(listed), filters
    assert len(ours(broker, "list", "--transactional-id-pattern", "orders-.*")) == 2
