"""`oncelog consume` against a broker in this process."""

import asyncio
import json
from collections.abc import Callable

import pytest
from click.testing import Result

from oncelog import Producer
from oncelog.cli.consume import GIVE_UP_S, SILENCE_S, ConsumeOptions, SilenceWatch
from oncelog.cli.tool import Failure
from oncelog.client import ConnectionLostError

Oncelog = Callable[..., Result]

ALL = ("--from-beginning", "--until-end")


def error_line(result: Result) -> str:
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: ")
    assert result.exit_code != 0
    return line.removeprefix("Error: ")


@pytest.fixture
def filled(oncelog: Oncelog, topic: str) -> str:
    """Three records in partition 0, one in partition 1."""
    options = ("--key-separator", ":", "--header", "h=1")
    oncelog("produce", topic, *options, "--partition", "0", stdin="a:1\nb:2\nc:3\n")
    oncelog("produce", topic, *options, "--partition", "1", stdin="d:4\n")
    return topic


def lines(oncelog: Oncelog, topic: str, *options: str) -> list[str]:
    result = oncelog("consume", topic, *options)
    assert (result.exit_code, result.stderr) == (0, "")
    return sorted(result.stdout.splitlines())


def test_values_are_printed_one_per_line(oncelog: Oncelog, filled: str) -> None:
    assert lines(oncelog, filled, *ALL) == ["1", "2", "3", "4"]


def test_columns_come_before_the_value(oncelog: Oncelog, filled: str) -> None:
    printed = lines(
        *(oncelog, filled, *ALL, "--print-partition", "--print-offset", "--print-headers"),
        *("--print-key", "--partition", "1"),
    )
    assert printed == ["Partition:1\tOffset:0\th:1\td\t4"]
    (line,) = lines(oncelog, filled, *ALL, "--print-timestamp", "--partition", "1")
    assert line.startswith("CreateTime:1")


def test_formats(oncelog: Oncelog, filled: str) -> None:
    only = (*ALL, "--partition", "1")
    assert lines(oncelog, filled, *only, "--format", "key-value") == ["d\t4"]
    assert lines(*(oncelog, filled, *only, "--format", "key-value", "--key-separator", " = ")) == [
        "d = 4"
    ]
    assert lines(oncelog, filled, *only, "--format", "{offset}:{value}") == ["0:4"]
    (line,) = lines(oncelog, filled, *only, "--json")
    row = json.loads(line)
    assert row.pop("timestamp") > 1_600_000_000_000
    assert row == {
        "topic": filled,
        "partition": 1,
        "offset": 0,
        "key": "d",
        "value": "4",
        "headers": [["h", "1"]],
    }


def test_it_starts_and_stops_where_it_is_told(oncelog: Oncelog, filled: str) -> None:
    at = ("--partition", "0", "--until-end")
    assert lines(oncelog, filled, *at, "--offset", "1") == ["2", "3"]
    assert lines(oncelog, filled, *at, "--offset", "earliest") == ["1", "2", "3"]
    assert lines(oncelog, filled, *at, "--offset", "latest") == []
    assert lines(oncelog, filled, *at) == ["1", "2", "3"]
    assert lines(oncelog, filled, "--from-beginning", "--max-messages", "4") == list("1234")
    assert lines(oncelog, filled, *at, "--from-beginning", "--max-messages", "2") == ["1", "2"]
    assert lines(oncelog, filled, "--from-beginning", "--timeout-ms", "200") == list("1234")


def test_a_group_goes_on_where_it_was(oncelog: Oncelog, filled: str) -> None:
    # A new group begins with what is new, and has committed nothing then.
    assert lines(oncelog, filled, "--group", filled, "--timeout-ms", "100") == []
    here = ("--group", filled, "--until-end")
    two = ("--partition", "0", "--max-messages", "2")
    assert lines(oncelog, filled, *here, *two) == ["1", "2"]
    assert lines(oncelog, filled, *here) == ["3", "4"]
    assert lines(oncelog, filled, *here) == []
    again = (*here, "--offset", "0", "--partition", "0")
    assert lines(oncelog, filled, *again) == ["1", "2", "3"]


def test_isolation_decides_what_is_seen_of_an_aborted_transaction(
    oncelog: Oncelog, topic: str, bootstrap_server: str
) -> None:
    async def abort() -> None:
        async with Producer(bootstrap_server, transactional_id=topic) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            await producer.send(topic, b"never")
            await producer.abort_transaction()

    asyncio.run(abort())
    oncelog("produce", topic, stdin="after\n")
    assert lines(oncelog, topic, *ALL) == ["after"]
    everything = lines(oncelog, topic, *ALL, "--isolation-level", "read_uncommitted")
    assert everything == ["after", "never"]


@pytest.mark.parametrize(
    ("options", "text", "code"),
    [
        (("--format", "foo"), "'foo' is neither value, key-value, json nor a template", 2),
        (("--format", "{foo}"), "no field {foo}; there are topic, partition", 2),
        (("--offset", "7"), "--offset with a number needs --partition", 2),
        (("--offset", "soon"), "'soon' is neither earliest, latest nor a number", 2),
        (("--offset", "1", "--from-beginning"), "exclude each other", 2),
        (("--max-messages", "0"), "Invalid value for '--max-messages'", 2),
        (("--isolation-level", "serial"), "Invalid value for '--isolation-level'", 2),
        (("--partition", "5"), "has no partition 5: it has 0 to 1", 1),
        (("--partition", "0", "--offset", "7"), "it has 0 to 3 (the next one)", 1),
    ],
)
def test_what_cannot_be_done_is_one_line(
    oncelog: Oncelog, filled: str, options: tuple[str, ...], text: str, code: int
) -> None:
    result = oncelog("consume", filled, *options)
    assert text in error_line(result)
    assert result.exit_code == code


def wanted(servers: str, topic: str) -> ConsumeOptions:
    return ConsumeOptions(
        servers=servers,
        topic=topic,
        partitions=(),
        offset="latest",
        reset="latest",
        until_end=False,
        max_messages=None,
        timeout_ms=None,
        isolation_level="read_committed",
        group=None,
    )


async def test_a_topic_that_is_deleted_meanwhile_ends_it(bootstrap_server: str) -> None:
    watch = SilenceWatch(wanted(bootstrap_server, "never-there"), now_s=0)
    await watch.look(0, SILENCE_S - 1)
    await watch.look(SILENCE_S, SILENCE_S + 1)  # there was a record a second ago
    with pytest.raises(Failure, match="unknown topic never-there"):
        await watch.look(0, SILENCE_S)


async def test_brokers_that_are_gone_are_waited_for_but_not_for_ever() -> None:
    watch = SilenceWatch(wanted("127.0.0.1:1", "any"), now_s=0)
    await watch.look(0, SILENCE_S)
    await watch.look(0, GIVE_UP_S)
    with pytest.raises(ConnectionLostError):
        await watch.look(0, SILENCE_S + GIVE_UP_S)


def test_an_unknown_topic_is_answered_with_the_nearest_name(oncelog: Oncelog) -> None:
    oncelog("topics", "create", "payments", "--if-not-exists")
    line = error_line(oncelog("consume", "payment"))
    assert line == "unknown topic payment: did you mean payments?"
