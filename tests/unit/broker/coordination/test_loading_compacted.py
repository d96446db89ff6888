"""A coordinator loads the same from its log before and after compaction."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from oncelog.broker.coordination.loading import load
from oncelog.coordinator import CoordinatorRecord
from oncelog.core.errors import ErrorCode
from oncelog.core.limits import INT64_MAX
from oncelog.protocol.record import Record, build_batch
from oncelog.runtime.disk import SystemDisk
from oncelog.storage import Origin
from tests.support.examples import examples
from tests.support.machine import Machine
from tests.unit.coordinator.support import AnyShard, processor_of
from tests.unit.coordinator.test_replay import (
    Step,
    groups,
    groups_of,
    offsets_log,
    transaction_log,
    transactions,
    transactions_of,
)
from tests.unit.storage.cleaner.context import RETENTION_MS, CompactedLog

steps = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *("commit", "commit", "delete", "send", "send", "end", "end"),
                *("generation", "forget", "seal", "seal", "clean", "wait", "restart"),
            ]
        ),
        st.integers(0, 1),
        st.integers(0, 1),
        st.integers(0, 9),
    ),
    max_size=30,
)


def take(ctx: CompactedLog, step: Step, *, of_offsets: bool) -> None:
    match step[0]:
        case "seal":
            ctx.seal()
        case "clean":
            ctx.clean()
        case "wait":
            ctx.now_ms += RETENTION_MS + 1
        case "restart":
            ctx.restart()
        case _:
            for item in offsets_log([step]) if of_offsets else transaction_log([step]):
                write(ctx, *item)


def write(ctx: CompactedLog, first: Any, second: Any) -> None:
    """A record, as part of a producer's transaction or not, or a producer's end marker."""
    if not isinstance(first, CoordinatorRecord):
        assert ctx.end(first, 0, commit=second).error is ErrorCode.none
        return
    record = Record(0, ctx.now_ms, first.key, first.value)
    producer: dict[str, Any] = {}
    if second is not None:
        producer = {"producer_id": second, "producer_epoch": 0, "base_sequence": 0}
    data = build_batch([record], transactional=second is not None, **producer)
    ctx.append_well(data, origin=Origin.COORDINATOR)


def loaded(ctx: CompactedLog, machine: AnyShard) -> Any:
    partition: Any = SimpleNamespace(log=ctx.log, topic_partition=ctx.log.topic_partition)
    asyncio.run(load(processor_of(machine), partition, SystemDisk(), INT64_MAX))
    return machine


@settings(max_examples=examples(30), deadline=None)
@given(steps, st.booleans())
@example([("send", 0, 0, 0), ("seal", 0, 0, 0), ("end", 0, 0, 0), ("commit", 0, 0, 1)], True)
def test_compaction_changes_nothing_that_a_load_brings(
    history: list[Step], of_offsets: bool
) -> None:
    """With gaps, emptied batches and delete horizons; INV-6: and markers whose records went."""
    ctx = CompactedLog(Path("/data/log-0"), Machine().disk)
    for step in history:
        take(ctx, step, of_offsets=of_offsets)
    ctx.seal()
    known = [state(ctx, of_offsets)]
    for _ in range(2):
        ctx.clean()
        ctx.restart()
        known.append(state(ctx, of_offsets))
        ctx.now_ms += RETENTION_MS + 1
    assert known[1:] == known[:1] * 2


def state(ctx: CompactedLog, of_offsets: bool) -> object:
    if of_offsets:
        return groups_of(loaded(ctx, groups()))
    return transactions_of(loaded(ctx, transactions()))
