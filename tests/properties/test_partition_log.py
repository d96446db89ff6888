"""Whatever is done to a log, and whatever happens to its machine, it holds what it has to (INV-9).

Two partitions of one log directory on a simulated disk, one of them compacted, beside a model that
is a list of batches. `python -m tests.properties` tries many more examples, and makes what it finds
smaller.
"""

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from oncelog.runtime import StorageFailure
from oncelog.simulation.disk import FaultKind, Moment
from oncelog.storage import LogConfig
from tests.properties import log_checks
from tests.properties.data_folder import COMPACTED, KEPT, PARTITIONS, DataFolder
from tests.properties.log_model import LogModel
from tests.properties.operations import (
    MINUTE_MS,
    Ledger,
    MakeAgain,
    Operation,
    Stretch,
    Truncate,
    checkpoint,
    clean,
    name_of,
    note_starts,
    stretches,
)
from tests.properties.oracle_checks import Oracles, check_files
from tests.support.examples import examples

STEPS_COUNT = 12
EXAMPLES_COUNT = 200
NEVER = 2**62

seeds = st.integers(0, 2**16)
rates = st.sampled_from((None, 0.0, 1.0))
segment_sizes = st.sampled_from((450, 700, 1500))
flush_counts = st.sampled_from((1, 3, NEVER))
distances = st.sampled_from((0, 2, 6, 15))
"""How far high watermarks are behind the ends of the logs."""


happened: Counter[str] = Counter()
"""What all examples together went through."""


class PartitionLogs(RuleBasedStateMachine):
    """See the module's text."""

    folder: DataFolder
    ledger: Ledger
    oracles: Oracles
    has_failed = False
    """Then nothing more is tried, so that the first failure is the one that is told."""

    @initialize(
        segment_bytes=segment_sizes,
        flush_messages=flush_counts,
        interval=st.sampled_from((1, 150)),
        retention_bytes=st.sampled_from((-1, 2000)),
        seed=seeds,
        distance=distances,
    )
    def start(
        self,
        segment_bytes: int,
        flush_messages: int,
        interval: int,
        retention_bytes: int,
        seed: int,
        distance: int,
    ) -> None:
        settings: dict[str, Any] = {
            "segment_bytes": segment_bytes,
            "segment_ms": 30 * MINUTE_MS,
            "flush_messages": flush_messages,
            "index_interval_bytes": interval,
            "retention_ms": 30 * MINUTE_MS,
            "producer_id_expiration_ms": NEVER,
        }
        kept = LogConfig(**settings, retention_bytes=retention_bytes)
        compacted = LogConfig(
            **settings, cleanup_policy=frozenset({"compact"}), delete_retention_ms=MINUTE_MS
        )
        self.folder = DataFolder({KEPT: kept, COMPACTED: compacted}, seed)
        self.ledger = Ledger({KEPT: LogModel(), COMPACTED: LogModel(compacted=True)})
        self.oracles = Oracles(distance)
        self.folder.open()

    # ---- in peace ----

    @rule(stretch=stretches)
    def live(self, stretch: Stretch) -> None:
        """Nothing goes wrong."""
        for operation in stretch.operations:
            happened[f"in peace: {name_of(operation)}"] += 1
            operation(self.folder, self.ledger)
            self.compare_with_oracles(operation)
        for partition, log in self.folder.logs.items():
            log_checks.check(log, self.ledger.models[partition])
            self.oracles.caught_up(partition, log)

    def compare_with_oracles(self, operation: Operation) -> None:
        for partition, log in self.folder.logs.items():
            if operation is clean or isinstance(operation, Truncate | MakeAgain):
                self.oracles.caught_up(partition, log)
            self.oracles.check(self.folder, partition, self.ledger.models[partition])

    @rule(partition=st.sampled_from(PARTITIONS), part=st.floats(0, 1), size=seeds)
    def read(self, partition: Any, part: float, size: int) -> None:
        model, log = self.ledger.models[partition], self.folder.logs[partition]
        log_checks.check(log, model)
        if model.hit is None:
            offset = model.start + int(part * (model.end - model.start))
            found = log_checks.read_from(log, offset, size % 600)
            wanted = [batch.data for batch in model.readable(offset)]
            assert [batch.data for batch in found] == wanted
            log_checks.check_committed(log, model, offset, found)
            log_checks.check_times(log, model, model.readable(model.start))

    @rule()
    def restart(self) -> None:
        happened["stops in order"] += 1
        self.folder.close()
        self.note_stop()
        self.check_files(was_closed=True)
        self.begin(lost_power=False, bumps=False)

    def check_files(self, *, was_closed: bool) -> None:
        for partition in PARTITIONS:
            model = self.ledger.models[partition]
            check_files(self.folder, partition, model, was_closed=was_closed)

    # ---- what goes wrong ----

    @rule(before=stretches, times=st.integers(1, 2), noted=st.booleans())
    def crash(self, before: Stretch, times: int, noted: bool) -> None:
        """The process dies; `noted`: it has written checkpoints since its start."""
        self.live(before)
        for _ in range(times):
            happened["deaths"] += 1
            self.folder.kill()
            self.begin(lost_power=False)
            if noted:
                checkpoint(self.folder, self.ledger)

    @rule(before=stretches, seed=seeds, rate=rates, times=st.integers(1, 2))
    def lose_power(self, before: Stretch, seed: int, rate: float | None, times: int) -> None:
        self.live(before)
        for turn in range(times):
            self.folder.lose_power(seed + turn, rate)
            self.begin(lost_power=True)

    @rule(
        stretch=stretches,
        after=st.integers(1, 25),
        moment=st.sampled_from(("before", "after", "torn")),
        power=st.one_of(st.none(), st.tuples(seeds, rates)),
    )
    def die_in(
        self,
        stretch: Stretch,
        after: int,
        moment: Moment,
        power: tuple[int, float | None] | None,
    ) -> None:
        """The process dies at one of its changes of the disk."""
        died = self.folder.dies_in(lambda: stretch(self.folder, self.ledger), after, moment)
        self.oracles.began()
        if died:
            happened["deaths at a change of the disk"] += 1
            self.come_back(power)

    @rule(
        after=st.integers(1, 40),
        moment=st.sampled_from(("before", "after", "torn")),
        in_order=st.booleans(),
        first=st.one_of(st.none(), st.tuples(seeds, rates)),
        power=st.one_of(st.none(), st.tuples(seeds, rates)),
    )
    def die_in_a_start(
        self,
        after: int,
        moment: Moment,
        in_order: bool,
        first: tuple[int, float | None] | None,
        power: tuple[int, float | None] | None,
    ) -> None:
        """It dies while it stops, or starts again after a stop, a death or a loss of power."""
        if in_order:
            died = self.folder.dies_in(self.folder.close, after, moment)
            if not died:
                self.note_stop()
        elif first is not None:
            self.folder.lose_power(*first)
        else:
            self.folder.kill()
        lost = first is not None and not in_order
        died = (in_order and died) or self.folder.dies_in(self.folder.open, after, moment)
        if died:
            happened["deaths while it stops or starts"] += 1
            self.come_back(power, lost_power=lost)
        else:
            self.settle(lost_power=lost)

    @rule(
        stretch=stretches,
        kind=st.sampled_from(FaultKind),
        after=st.integers(0, 12),
        seed=seeds,
        power=st.one_of(st.none(), st.tuples(seeds, rates)),
        in_order=st.booleans(),
    )
    def fail_in(
        self,
        stretch: Stretch,
        kind: FaultKind,
        after: int,
        seed: int,
        power: tuple[int, float | None] | None,
        in_order: bool,
    ) -> None:
        """One operation of the disk fails, and the broker goes down."""
        self.folder.fail(kind, after, seed)
        self.go_down_if_it_fails(stretch, power, in_order)

    @rule(
        stretch=stretches,
        seed=seeds,
        power=st.one_of(st.none(), st.tuples(seeds, rates)),
        in_order=st.booleans(),
    )
    def fill_the_disk(
        self,
        stretch: Stretch,
        seed: int,
        power: tuple[int, float | None] | None,
        in_order: bool,
    ) -> None:
        self.folder.fill(seed)
        self.go_down_if_it_fails(stretch, power, in_order)

    @rule(seed=seeds, in_order=st.booleans(), times=st.integers(1, 2))
    def flip_a_bit(self, seed: int, in_order: bool, times: int) -> None:
        """A bit below the recovery points flips while the broker is down."""
        if any(model.hit is not None for model in self.ledger.models.values()):
            return
        for partition, log in self.folder.logs.items():
            log.flush()
            self.ledger.models[partition].synced(log.log_end_offset)
        checkpoint(self.folder, self.ledger)
        bases = {p: log.segment_base_offsets for p, log in self.folder.logs.items()}
        if in_order:
            self.folder.close()
        self.folder.kill()
        flipped = self.folder.flip_bit(seed)
        for model in self.ledger.models.values():
            model.forgettable_end = model.end
        if flipped is not None:
            happened[f"bits flipped in {flipped[1].partition('.')[2]}"] += 1
        if flipped is not None and flipped[1].endswith(".log"):
            partition, name, position = flipped
            base = int(name.removesuffix(".log"))
            self.ledger.models[partition].damaged(base, position, base == bases[partition][-1])
        self.begin(lost_power=False)
        for _ in range(times - 1):
            self.crash(Stretch([]), 1, noted=True)

    def go_down_if_it_fails(
        self, stretch: Stretch, power: tuple[int, float | None] | None, in_order: bool
    ) -> None:
        self.oracles.began()
        try:
            stretch(self.folder, self.ledger)
        except StorageFailure as failure:
            happened[f"failures to {failure.operation}"] += 1
            if in_order:
                self.stop_if_possible()
            self.folder.heal()
            self.come_back(power)
        finally:
            self.folder.heal()

    def stop_if_possible(self) -> None:
        try:
            self.folder.close()
        except StorageFailure:
            return

    def come_back(
        self, power: tuple[int, float | None] | None, *, lost_power: bool = False
    ) -> None:
        if power is None:
            self.folder.kill()
        else:
            self.folder.lose_power(*power)
        self.begin(lost_power=lost_power or power is not None)

    def note_stop(self) -> None:
        note_starts(self.ledger)
        for model in self.ledger.models.values():
            model.synced(model.end)

    def begin(self, *, lost_power: bool, bumps: bool = True) -> None:
        self.folder.open()
        self.settle(lost_power=lost_power, bumps=bumps)

    def settle(self, *, lost_power: bool, bumps: bool = True) -> None:
        """Judge what a start made of the folder, and go on from there."""
        self.has_failed = True
        self.oracles.began()
        happened["starts after a loss of power" if lost_power else "other starts"] += 1
        for partition, log in self.folder.logs.items():
            model = self.ledger.models[partition]
            found = log_checks.judge_restart(log, model, lost_power=lost_power)
            first = log.segment_base_offsets[0]
            if model.hit is None:
                model.restarted(found, log.log_start_offset, log.log_end_offset, first)
            else:
                model.restarted_damaged(found, log.log_start_offset, log.log_end_offset, first)
            model.durable_end = log.recovery_point
            if lost_power:
                model.ghosts.clear()
                model.forgettable_end = model.end
            elif model.ghosts:
                # The cut was interrupted. Who goes on from there has to make sure that it lasts.
                log.flush()
                model.synced(log.recovery_point)
            log_checks.check(log, model)
            self.oracles.check(self.folder, partition, model)
        self.check_files(was_closed=False)
        self.has_failed = False
        if bumps:
            latest = max(log.latest_epoch for log in self.folder.logs.values())
            self.ledger.leader_epoch = max(self.ledger.leader_epoch, latest) + 1

    def teardown(self) -> None:
        if hasattr(self, "folder") and not self.has_failed:
            self.crash(Stretch([]), 1, noted=True)
            self.restart()


def run(examples_count: int, **options: Any) -> None:
    """Try so many examples."""
    run_state_machine_as_test(
        PartitionLogs,
        settings=settings(
            max_examples=examples_count,
            stateful_step_count=STEPS_COUNT,
            deadline=None,
            database=None,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
            **options,
        ),
    )


@pytest.mark.slow
def test_a_log_holds_what_it_has_to_whatever_happens() -> None:
    run(examples(EXAMPLES_COUNT), derandomize=True, phases=(Phase.explicit, Phase.generate))
