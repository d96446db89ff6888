"""Scenarios of the transaction coordinator: narrated commands, each with its exact output.

How a file is read is told in `tests.scenarios.steps`. Requests are numbered; one without an answer
yet "waits".

Commands: init, add, verify, end commit|abort, describe (with producer=, epoch=, v=, timeout=,
id=, and two-phase or keep-prepared for init); markers [ERROR] [only=t-0]; hold,
commit, fail ERROR; tick MS; drop N; fail-over; resign; exhaust; no-producer-ids; at STATE v=, which
starts anew with an id in that state, at the epoch that two starts of its producer lead to.

Each request falls into a cell of the coordinator's tables (`cells`); all scenarios together have to
reach all of them, and every legal move.
"""

from pathlib import Path

import pytest

from oncelog.core.errors import ErrorCode
from oncelog.core.ids import ProducerEpoch, ProducerId, TopicPartition
from oncelog.transaction import records
from oncelog.transaction.events import (
    AddPartitions,
    AddPartitionsReply,
    DescribeTransaction,
    DescribeTransactionReply,
    EndTxn,
    EndTxnReply,
    InitProducerId,
    InitProducerIdReply,
    SendMarkers,
)
from oncelog.transaction.states import TransactionMetadata, TransactionState
from oncelog.transaction.store import TransactionConfig
from tests.scenarios.steps import compare, read_steps
from tests.scenarios.transaction.cells import BUGS, ERRORS, MOVES, TABLE, WAITS, cell_of
from tests.unit.transaction.context import EPOCH_MAX, FIRST_PRODUCER_ID, ID, Context

FILES = sorted(Path(__file__).parent.glob("*.txt"))
ROOT = Path(__file__).resolve().parents[3]
S = TransactionState


class Narrator(Context):
    """Runs commands and tells what comes of them, and keeps which cells and moves they reached.

    After `listen` it tells what the log is told, too.
    """

    def __post_init__(self) -> None:
        self.listens = False
        self.cells: set[tuple[str, str]] = set()
        self.errors: set[str] = set()
        self.moves: set[tuple[str, str]] = set()
        super().__post_init__()

    def perform(self, command: str) -> list[str]:
        verb, *words = command.split()
        self._cell = ""
        options = dict(word.split("=") for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        seen_results, seen_log = set(self.results), len(self.log)
        seen_markers, self.markers = self.markers, []
        self.notices.clear()
        told = self._act(verb, plain, options, seen_markers)
        if verb == "at":
            return [f"{self.state.label} producer={self.ids[0]} epoch={self.ids[1]}"]
        lines = [self._show_record(index) for index in range(seen_log, len(self.log))]
        self._keep_moves(seen_log, fences=verb in ("init", "tick"))
        lines += [_show_markers(effect) for effect in self.markers]
        if self.listens:
            lines += [f"tells: {notice.text}" for notice in self.notices]
        if verb != "markers":
            self.markers = seen_markers + self.markers
        self.errors |= {_outcome(result) for result in self.results.values()}
        fresh = [token for token in self.results if token not in seen_results]
        lines += [f"#{token} {_show_result(self.results[token])}" for token in fresh]
        if told is not None and told not in self.results:
            lines.append(f"#{told} waits")
        if self._cell:
            is_answered = told is not None and told in self.results
            outcome = _outcome(self.results[told]) if is_answered else WAITS  # type: ignore[index]
            self.cells.add((self._cell, outcome))
        return lines or ["nothing"]

    def _act(
        self, verb: str, plain: list[str], options: dict[str, str], markers: list[SendMarkers]
    ) -> int | None:
        match verb:
            case "init" | "add" | "verify" | "end" | "describe":
                return self._request(verb, plain, options)
            case "markers":
                self._answer(plain, options, markers)
            case "listen":
                self.listens = True
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
                self.drop(int(plain[0]))
            case "resign":
                self.run(self.processor.resign(self.now_ms))
            case "fail-over":
                markers.clear()
                self.fail_over()
            case "no-producer-ids":
                self.has_producer_ids = False
            case "at":
                self._start_at(TransactionState[plain[0].upper()], int(options.get("v", 2)))
            case "exhaust":
                markers.clear()
                self.force_epoch(EPOCH_MAX - 1)
            case _:
                raise AssertionError(f"no such command: {verb}")
        return None

    def _start_at(self, state: TransactionState, version: int) -> None:
        """A new coordinator, and an id that stands in `state`, by requests of that version."""
        self.version = version
        self.log.clear()
        self.results.clear()
        self.markers.clear()
        self.server_version = version
        self._next_producer_id = int(FIRST_PRODUCER_ID)
        self._next_token = 1
        self.load()
        self.init()
        self.init()
        self.go_to(state)
        self.results.clear()
        self._next_token = 1

    def _request(self, verb: str, plain: list[str], options: dict[str, str]) -> int:
        event = self._event(verb, plain, options)
        if not isinstance(event, DescribeTransaction):
            now = self.shard.transactions.get(event.transactional_id)
            self._cell = cell_of(event, now)
            if isinstance(event, InitProducerId) and _is_odd(event):
                self._cell = ""
        return self.send(event)

    def _event(
        self, verb: str, plain: list[str], options: dict[str, str]
    ) -> InitProducerId | AddPartitions | EndTxn | DescribeTransaction:
        id_ = options.get("id", ID)
        now = self.shard.transactions.get(id_)
        is_init = verb == "init"
        producer_id = ProducerId(
            int(options.get("producer", -1 if is_init or now is None else now.producer_id))
        )
        epoch = ProducerEpoch(
            int(options.get("epoch", -1 if is_init or now is None else now.producer_epoch))
        )
        version = int(options.get("v", 2))
        if is_init:
            timeout_ms = int(options.get("timeout", 60_000))
            keeps, two_phase = "keep-prepared" in plain, "two-phase" in plain
            return InitProducerId(id_, timeout_ms, producer_id, epoch, keeps, two_phase)
        if verb == "end":
            commit = plain == ["commit"]
            return EndTxn(id_, producer_id, epoch, commit, version)
        if verb == "describe":
            return DescribeTransaction(id_)
        partitions = tuple(_partition(word) for word in plain)
        return AddPartitions(id_, producer_id, epoch, partitions, verb == "verify", version)

    def _keep_moves(self, seen_log: int, *, fences: bool) -> None:
        """The moves that the log has made, by way of the fence where nobody asked for the end."""
        before: TransactionMetadata | None = None
        for position, (entry, _) in enumerate(self.log):
            _, after = records.decode(entry)
            if position >= seen_log and before is not None:
                name = S.DEAD.label if after is None else after.state.label
                was = before.state.label
                if fences and before.state is S.ONGOING and name == S.PREPARE_ABORT.label:
                    self.moves.add((was, S.PREPARE_EPOCH_FENCE.label))
                    was = S.PREPARE_EPOCH_FENCE.label
                self.moves.add((was, name))
            before = after

    def _answer(
        self, plain: list[str], options: dict[str, str], markers: list[SendMarkers]
    ) -> None:
        error = ErrorCode[plain[0].lower()] if plain else ErrorCode.none
        only = (_partition(options["only"]),) if "only" in options else None
        for effect in list(markers):
            self.answer(effect, error, partitions=only, is_closed="closed" in plain)
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


def _is_odd(event: InitProducerId) -> bool:
    """Refused for what it asks, whatever the state."""
    is_timeout_odd = not 0 < event.timeout_ms <= TransactionConfig().timeout_ms_max
    is_half = (event.producer_id < 0) != (event.producer_epoch < 0)
    return event.keep_prepared or event.enable_two_phase_commit or is_timeout_odd or is_half


def _outcome(result: object) -> str:
    """The error of an answer; of one about partitions, the worst of theirs."""
    if isinstance(result, AddPartitionsReply):
        errors = {error.name.upper() for _, error in result.partitions}
        return next(iter(errors - {"NONE"}), "NONE")
    return str(result.error.name.upper())  # type: ignore[attr-defined]


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
        InitProducerIdReply | EndTxnReply | AddPartitionsReply | DescribeTransactionReply,
    )
    name = result.error.name.upper()
    match result:
        case InitProducerIdReply() | EndTxnReply():
            if result.producer_id < 0:
                return name
            return f"{name} producer={result.producer_id} epoch={result.producer_epoch}"
        case AddPartitionsReply():
            each = {str(partition): error.name.upper() for partition, error in result.partitions}
            if set(each.values()) <= {name}:
                return name
            return " ".join(f"{partition}={error}" for partition, error in each.items())
        case DescribeTransactionReply():
            return f"{name} {result.state.label} cause: {result.cause}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    steps = read_steps(path)
    narrator = Narrator()
    compare(path, [narrator.perform(step.command) if step.command else [] for step in steps])


def reached() -> Narrator:
    """What all scenarios together reach."""
    all_of_them = Narrator()
    for path in FILES:
        narrator = Narrator()
        for step in read_steps(path):
            if step.command:
                narrator.perform(step.command)
        all_of_them.cells |= narrator.cells
        all_of_them.moves |= narrator.moves
        all_of_them.errors |= narrator.errors
    return all_of_them


def test_every_cell_of_the_tables_has_a_scenario_with_its_outcome() -> None:
    cells = reached().cells
    missing = sorted(cell for cell in TABLE.items() if cell not in cells)
    assert not missing


def test_every_legal_move_has_a_scenario() -> None:
    assert sorted(MOVES - reached().moves) == []


def test_no_scenario_moves_otherwise() -> None:
    assert sorted(reached().moves - MOVES) == []


def test_every_error_that_a_client_can_see_has_a_scenario() -> None:
    assert sorted(reached().errors ^ ERRORS) == []


@pytest.mark.parametrize(("bug", "file"), BUGS.items())
def test_each_bug_of_upstream_has_a_scenario_that_names_it(bug: str, file: str) -> None:
    assert bug in (ROOT / file).read_text()
