"""Scenarios of the transaction coordinator: narrated commands, each with its exact output.

A file is a sequence of steps: lines that begin with # tell the story, then one command, then ----
and what comes of it, then an empty line. Requests are numbered; one without an answer yet "waits".
`ONCELOG_REWRITE_SCENARIOS=1 pytest tests/scenarios/transaction` writes what comes out into the
files, to be read before it is committed.

Commands: init, add, verify, end commit|abort, describe (with producer=, epoch=, v=, timeout=,
connection=); markers [ERROR] [only=t-0]; hold, commit, fail ERROR; tick MS; drop N; fail-over;
resign; exhaust.
"""

import os
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

import pytest

from oncelog.core.errors import ErrorCode
from oncelog.core.ids import ProducerEpoch, ProducerId, TopicPartition
from oncelog.transaction import (
    AddPartitions,
    AddPartitionsResult,
    DescribeTransaction,
    DescribeTransactionResult,
    EndTxn,
    EndTxnResult,
    InitProducerId,
    InitProducerIdResult,
    SendMarkers,
    records,
)
from tests.unit.transaction.context import EPOCH_MAX, ID, Context

FILES = sorted(Path(__file__).parent.glob("*.txt"))


@dataclass
class Step:
    """One command of a file, with the lines before it and the output after it."""

    story: list[str]
    command: str
    expected: list[str]


def read_steps(text: str) -> list[Step]:
    steps = []
    for block in text.strip().split("\n\n"):
        lines = block.split("\n")
        story = list(takewhile(lambda line: line.startswith("#"), lines))
        rest = lines[len(story) :]
        if not rest:
            steps.append(Step(story, "", []))
            continue
        assert rest[1:2] == ["----"], f"after a command comes ----: {block}"
        steps.append(Step(story, rest[0], rest[2:]))
    return steps


def write_steps(steps: list[Step], outputs: list[list[str]]) -> str:
    blocks = []
    for step, output in zip(steps, outputs, strict=True):
        body = [step.command, "----", *output] if step.command else []
        blocks.append("\n".join(step.story + body))
    return "\n\n".join(blocks) + "\n"


class Narrator(Context):
    """Runs commands and tells what comes of them."""

    def perform(self, command: str) -> list[str]:
        verb, *words = command.split()
        options = dict(word.split("=") for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        seen_results, seen_log = set(self.results), len(self.log)
        seen_markers, self.markers = self.markers, []
        told = self._act(verb, plain, options, seen_markers)
        lines = [self._show_record(index) for index in range(seen_log, len(self.log))]
        lines += [_show_markers(effect) for effect in self.markers]
        if verb != "markers":
            self.markers = seen_markers + self.markers
        fresh = [token for token in self.results if token not in seen_results]
        lines += [f"#{token} {_show_result(self.results[token])}" for token in fresh]
        if told is not None and told not in self.results:
            lines.append(f"#{told} waits")
        return lines or ["nothing"]

    def _act(
        self, verb: str, plain: list[str], options: dict[str, str], markers: list[SendMarkers]
    ) -> int | None:
        match verb:
            case "init" | "add" | "verify" | "end" | "describe":
                return self._request(verb, plain, options)
            case "markers":
                self._answer(plain, options, markers)
            case "hold":
                self.holds = True
            case "commit":
                self.holds = False
                self.commit_held()
            case "fail":
                self.holds = False
                self.fail_held(ErrorCode[plain[0].lower()])
            case "tick":
                self.tick(int(plain[0]))
            case "drop":
                self.processor.drop(int(plain[0]))
            case "resign":
                self.run(self.processor.resign(self.now_ms))
            case "fail-over":
                markers.clear()
                self.fail_over()
            case "exhaust":
                markers.clear()
                self.force_epoch(EPOCH_MAX - 1)
            case _:
                raise AssertionError(f"no such command: {verb}")
        return None

    def _request(self, verb: str, plain: list[str], options: dict[str, str]) -> int:
        now = self.shard.transactions.get(ID)
        is_init = verb == "init"
        producer_id = ProducerId(
            int(options.get("producer", -1 if is_init or now is None else now.producer_id))
        )
        epoch = ProducerEpoch(
            int(options.get("epoch", -1 if is_init or now is None else now.producer_epoch))
        )
        version = int(options.get("v", 2))
        if is_init:
            return self.send(
                InitProducerId(ID, int(options.get("timeout", 60_000)), producer_id, epoch)
            )
        connection = int(options.get("connection", 0))
        if verb == "end":
            commit = plain == ["commit"]
            return self.send(EndTxn(ID, producer_id, epoch, commit, version, connection))
        if verb == "describe":
            return self.send(DescribeTransaction(ID))
        partitions = tuple(_partition(word) for word in plain)
        return self.send(
            AddPartitions(ID, producer_id, epoch, partitions, verb == "verify", version, connection)
        )

    def _answer(
        self, plain: list[str], options: dict[str, str], markers: list[SendMarkers]
    ) -> None:
        error = ErrorCode[plain[0].lower()] if plain else ErrorCode.none
        only = (_partition(options["only"]),) if "only" in options else None
        for effect in list(markers):
            self.answer(effect, error, partitions=only)
        if only is not None:
            self.markers = markers + self.markers

    def _show_record(self, index: int) -> str:
        id_, metadata = records.decode(self.log[index][0])
        if metadata is None:
            return f"log: {id_} tombstone"
        names = " ".join(str(partition) for partition in sorted(metadata.partitions))
        following = "" if metadata.next_producer_id < 0 else f" next={metadata.next_producer_id}"
        ids = f"producer={metadata.producer_id} epoch={metadata.producer_epoch}"
        return f"log: {metadata.state.label} {ids}{following} [{names}]"


def _partition(name: str) -> TopicPartition:
    topic, _, number = name.rpartition("-")
    return TopicPartition(topic, int(number))


def _show_markers(effect: object) -> str:
    assert isinstance(effect, SendMarkers)
    names = " ".join(str(partition) for partition in effect.partitions)
    outcome = "COMMIT" if effect.commit else "ABORT"
    after = f" after {effect.delay_ms} ms" if effect.delay_ms else ""
    ids = f"producer={effect.producer_id} epoch={effect.producer_epoch}"
    return f"markers: {outcome} {ids} coordinator={effect.coordinator_epoch} [{names}]{after}"


def _show_result(result: object) -> str:
    assert isinstance(
        result,
        InitProducerIdResult | EndTxnResult | AddPartitionsResult | DescribeTransactionResult,
    )
    name = result.error.name.upper()
    match result:
        case InitProducerIdResult() | EndTxnResult():
            if result.producer_id < 0:
                return name
            return f"{name} producer={result.producer_id} epoch={result.producer_epoch}"
        case AddPartitionsResult():
            each = {str(partition): error.name.upper() for partition, error in result.partitions}
            if set(each.values()) <= {name}:
                return name
            return " ".join(f"{partition}={error}" for partition, error in each.items())
        case DescribeTransactionResult():
            return f"{name} {result.state.label} cause: {result.cause}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    steps = read_steps(path.read_text())
    narrator = Narrator()
    outputs = [narrator.perform(step.command) if step.command else [] for step in steps]
    if os.environ.get("ONCELOG_REWRITE_SCENARIOS"):
        path.write_text(write_steps(steps, outputs))
        return
    for step, output in zip(steps, outputs, strict=True):
        assert output == step.expected, f"{path.name}: {step.command}"


def test_there_are_scenarios() -> None:
    assert len(FILES) >= 8
