"""`oncelog produce` against a broker in this process."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from oncelog.cli.produce import Job, SendTally, _commit
from oncelog.cli.records import parse_json
from oncelog.cli.tool import Failure
from oncelog.client import AbortableError, RetriableError
from oncelog.core.errors import ErrorCode

Oncelog = Callable[..., Result]


def records(oncelog: Oncelog, topic: str, *options: str) -> list[dict[str, object]]:
    """Everything in the topic, in the order of partitions and offsets."""
    result = oncelog("consume", topic, "--from-beginning", "--until-end", "--json", *options)
    assert result.exit_code == 0, result.stderr
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    return sorted(rows, key=lambda row: (row["partition"], row["offset"]))


def values(oncelog: Oncelog, topic: str, *options: str) -> list[object]:
    return [row["value"] for row in records(oncelog, topic, *options)]


def error_line(result: Result) -> str:
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: ")
    assert result.exit_code != 0
    return line.removeprefix("Error: ")


def test_every_line_becomes_a_record(oncelog: Oncelog, topic: str) -> None:
    result = oncelog("produce", topic, "--partition", "0", stdin="one\n\nthree\r\nlast")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")
    assert values(oncelog, topic) == ["one", "", "three", "last"]


def test_no_input_is_no_record(oncelog: Oncelog, topic: str) -> None:
    assert oncelog("produce", topic).exit_code == 0
    assert values(oncelog, topic) == []


def test_keys_headers_and_partitions_are_given_with_options(oncelog: Oncelog, topic: str) -> None:
    options = ["--key-separator", r"\t", "--header", "source=test", "--header", "n=1"]
    options += ["--partition", "1", "--null-marker", "NULL"]
    result = oncelog("produce", topic, *options, stdin="k\tv\nNULL\tNULL\n")
    assert result.exit_code == 0, result.stderr
    first, second = records(oncelog, topic)
    assert (first["partition"], first["key"], first["value"]) == (1, "k", "v")
    assert first["headers"] == [["source", "test"], ["n", "1"]]
    assert (second["key"], second["value"]) == (None, None)


def test_the_key_decides_the_partition(oncelog: Oncelog, topic: str) -> None:
    assert oncelog("produce", topic, "--key", "same", stdin="a\nb\nc\n").exit_code == 0
    assert len({row["partition"] for row in records(oncelog, topic)}) == 1


def test_a_file_is_read_instead(oncelog: Oncelog, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"a\nb\n")
    assert oncelog("produce", topic, "--file", str(file)).exit_code == 0
    assert sorted(map(str, values(oncelog, topic))) == ["a", "b"]
    line = error_line(oncelog("produce", topic, "--file", str(tmp_path / "none")))
    assert line == f"cannot read {tmp_path / 'none'}: No such file or directory"


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_arrives(oncelog: Oncelog, topic: str, codec: str) -> None:
    result = oncelog("produce", topic, "--compression-codec", codec, stdin="a" * 1000 + "\n")
    assert result.exit_code == 0, result.stderr
    assert values(oncelog, topic) == ["a" * 1000]


@pytest.mark.parametrize("acks", ["all", "1", "0"])
def test_every_kind_of_acknowledgement_arrives(oncelog: Oncelog, topic: str, acks: str) -> None:
    result = oncelog("produce", topic, "--acks", acks, stdin="a\n")
    assert result.exit_code == 0, result.stderr
    assert values(oncelog, topic) == ["a"]


def test_a_topic_is_copied_through_json(oncelog: Oncelog, topic: str) -> None:
    stdin = b"k\xff:v\xfe\nk2:text\n"
    oncelog("produce", topic, "--key-separator", ":", "--header", "h=1", stdin=stdin)
    printed = oncelog("consume", topic, "--from-beginning", "--until-end", "--json").stdout
    copy = f"{topic}-copy"
    oncelog("topics", "create", copy, "--partitions", "2")
    assert oncelog("produce", copy, "--format", "json", stdin=printed).exit_code == 0
    original = [{**row, "topic": ""} for row in records(oncelog, topic)]
    assert [{**row, "topic": ""} for row in records(oncelog, copy)] == original
    assert {"base64": "a/8="} in [row["key"] for row in original]


def test_json_output_says_where_each_record_went(oncelog: Oncelog, topic: str) -> None:
    result = oncelog("produce", topic, "--partition", "1", "--json", stdin="a\nb\n")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(r["topic"], r["partition"], r["offset"]) for r in rows] == [
        (topic, 1, 0),
        (topic, 1, 1),
    ]


def test_a_transaction_commits_all_lines(oncelog: Oncelog, topic: str) -> None:
    result = oncelog("produce", topic, "--transactional-id", "all", stdin="a\nb\n")
    assert result.exit_code == 0, result.stderr
    assert sorted(map(str, values(oncelog, topic))) == ["a", "b"]


def test_a_bad_line_aborts_the_transaction(oncelog: Oncelog, topic: str) -> None:
    good = '{"value": "x"}\n' * 20_000
    options = ("--format", "json", "--transactional-id", "bad")
    line = error_line(oncelog("produce", topic, *options, stdin=good + "bad\n"))
    assert line.startswith("line 20001: not JSON")
    assert line.endswith("the transaction was aborted: readers under read_committed see none of it")
    assert values(oncelog, topic) == []


def test_a_bad_line_keeps_what_was_sent_without_a_transaction(oncelog: Oncelog, topic: str) -> None:
    result = oncelog("produce", topic, "--key-separator", ":", stdin="a:1\nb:2\nc\n")
    assert error_line(result) == (
        "line 3: no key separator ':'; acknowledged until then: 2 records"
    )
    assert sorted(map(str, values(oncelog, topic))) == ["1", "2"]


class CommittingProducer:
    """A producer whose commit takes until it is told how it ends."""

    def __init__(self) -> None:
        self.outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.aborted_count = 0

    async def commit_transaction(self) -> None:
        await self.outcome

    async def abort_transaction(self) -> None:
        self.aborted_count += 1


def a_job() -> Job:
    return Job("broker:1", "t", parse_json, None, None, (), "none", "id", 1000, "all", False)


async def test_a_commit_that_began_is_finished_before_a_signal_ends_the_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    producer = CommittingProducer()
    job = a_job()
    commit = asyncio.create_task(_commit(job, producer, SendTally(job, 1)))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    commit.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not commit.done()
    producer.outcome.set_result(None)
    with pytest.raises(asyncio.CancelledError):
        await commit
    assert producer.aborted_count == 0
    assert "the transaction is committed" in capsys.readouterr().err


async def test_an_outcome_that_is_unknown_is_called_so_and_not_aborted() -> None:
    producer = CommittingProducer()
    job = a_job()
    producer.outcome.set_exception(RetriableError(ErrorCode.request_timed_out, "EndTxn"))
    with pytest.raises(Failure, match="whether the transaction committed is unknown"):
        await _commit(job, producer, SendTally(job, 1))  # type: ignore[arg-type]
    assert producer.aborted_count == 0


async def test_a_commit_that_is_refused_is_aborted() -> None:
    producer = CommittingProducer()
    job = a_job()
    producer.outcome.set_exception(AbortableError(ErrorCode.transaction_abortable, "no"))
    with pytest.raises(Failure, match="the transaction was aborted"):
        await _commit(job, producer, SendTally(job, 1))  # type: ignore[arg-type]
    assert producer.aborted_count == 1


def test_a_record_that_is_too_large_names_its_line(oncelog: Oncelog, topic: str) -> None:
    stdin = "small\n" + "x" * 2_000_000 + "\n"
    line = error_line(oncelog("produce", topic, "--partition", "0", stdin=stdin))
    assert line.startswith("line 2: ")
    assert "max.message.bytes" in line
    assert line.endswith("acknowledged until then: 1 record")


def test_a_partition_that_is_not_there_names_its_line(oncelog: Oncelog, topic: str) -> None:
    line = error_line(oncelog("produce", topic, "--partition", "2", stdin="a\n"))
    assert line.startswith(f"line 1: {topic} has no partition 2: it has 0 to 1")


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (
            '{"value": "x", "timestamp": 99999999999999999999}',
            "timestamp_ms must be a whole number",
        ),
        ('{"value": "x", "headers": {"\\ud800": "a"}}', "a header's name must be text"),
    ],
)
def test_a_record_that_cannot_be_encoded_names_its_line(
    oncelog: Oncelog, topic: str, line: str, what: str
) -> None:
    result = oncelog("produce", topic, "--format", "json", stdin=f'{{"value": "a"}}\n{line}\n')
    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: line 2: {what}")


def test_a_record_without_a_time_can_be_copied(oncelog: Oncelog, topic: str) -> None:
    line = '{"value": "x", "timestamp": -1}\n'
    assert oncelog("produce", topic, "--format", "json", stdin=line).exit_code == 0


def test_an_unknown_topic_is_not_made_by_a_typing_error(oncelog: Oncelog) -> None:
    oncelog("topics", "create", "arrivals", "--if-not-exists")
    line = error_line(oncelog("produce", "arivals", stdin="a\n"))
    assert line == (
        "unknown topic arivals: did you mean arrivals? `oncelog topics create arivals` makes a"
        " new one"
    )


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--format", "xml"), "Invalid value for '--format'"),
        (("--acks", "2"), "Invalid value for '--acks'"),
        (("--compression-codec", "rar"), "Invalid value for '--compression-codec'"),
        (("--header", "h"), "'h' is not KEY=VALUE"),
        (("--format", "json", "--key-separator", ":"), "are for --format raw"),
        (("--key-separator", ""), "Invalid value for --key-separator: it is empty"),
        (("--key-separator", "\\x"), "backslash"),
        (("--transactional-id", "t", "--acks", "1"), "a transaction needs --acks all"),
    ],
)
def test_options_that_make_no_sense_are_one_line(
    oncelog: Oncelog, options: tuple[str, ...], text: str
) -> None:
    result = oncelog("produce", "any", *options)
    assert text in error_line(result)
    assert result.exit_code == 2
