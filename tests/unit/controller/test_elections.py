"""The table of a partition's moves, row by row, as the controller decides them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from oncelog.controller import elections
from oncelog.controller.changes import ConfigChange, ConfigOperation
from oncelog.controller.decision import ControllerEvent
from oncelog.controller.events import (
    AlterPartition,
    AlterTopicConfigs,
    BrokersChanged,
    BrokerShuttingDown,
    DirectoryFailed,
    ElectLeaders,
    ForgetBroker,
    IsrChange,
    IsrMember,
    OffLineReplica,
    ReplicasMadeAgain,
)
from oncelog.controller.image import PartitionImage
from tests.unit.controller.cluster import ID, MIN_ISR, T0, UNCLEAN, Metadata, registration

ROOT = Path(__file__).resolve().parents[3]
EPOCH, PARTITION_EPOCH = 4, 9


class Row(NamedTuple):
    """One move, as the table writes it."""

    state: str
    live: str
    event: str
    after: str


def rows_of_module() -> list[Row]:
    text = elections.__doc__ or ""
    rule, _, _, *lines, _ = text[text.index("====") :].splitlines()
    starts = [match.start() for match in re.finditer("=+", rule)]
    cells = list(zip(starts, [*starts[1:], None], strict=True))
    return [Row(*(line[begin:end].strip() for begin, end in cells)) for line in lines]


def rows_of_document() -> list[Row]:
    head = "| state | live | event | next |\n|---|---|---|---|\n"
    lines = (ROOT / "docs/cluster.md").read_text().split(head)[1].splitlines()
    rows = [line for line in lines if line.startswith("| ")]
    return [Row(*(cell.strip() for cell in row.replace("`", "").split("|")[1:-1])) for row in rows]


def numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"-?\d+", text)))


def parsed(text: str) -> PartitionImage:
    """A state of the table, with the epochs that all rows begin with."""
    match = re.fullmatch(r"(\S+):([ \d]*)(\([ \d]*\))?\s*(\{.*\})?\s*(\[.*\])?", text)
    assert match is not None, text
    leader, isr, eligible, suspects, off_line = match.groups(default="")
    logs = {
        int(who): None if end == "?" else (3, int(end))
        for who, end in re.findall(r"(\d) to (\d|\?)", suspects)
    }
    return PartitionImage(
        leader=-1 if leader == "-" else int(leader),
        leader_epoch=EPOCH,
        isr=numbers(isr),
        replicas=(1, 2, 3),
        offline_replicas=numbers(off_line),
        partition_epoch=PARTITION_EPOCH,
        eligible=numbers(eligible),
        suspects=logs,
        unknown_fields='{"newer":1}',
    )


def event_of(text: str, state: PartitionImage) -> ControllerEvent[Any]:
    who = numbers(text)
    if "gone" in text:
        return BrokersChanged()
    if "is back" in text:
        log = {T0: (3, who[1])} if "to" in text else {}
        return registration(who[0], is_clean="doubted" not in text, uncertain=log)
    if "shuts down" in text:
        return BrokerShuttingDown(who[0], 1)
    if "forgotten" in text:
        return ForgetBroker(who[0])
    if "without records" in text:
        return ReplicasMadeAgain(who[0], (OffLineReplica(ID, 0, PARTITION_EPOCH),))
    if "directory" in text:
        return DirectoryFailed(who[0], (T0,))
    if "asks" in text:
        isr = tuple(IsrMember(one, 1) for one in who[1:])
        return AlterPartition(who[0], 1, (IsrChange(ID, 0, EPOCH, PARTITION_EPOCH, isr),))
    if "preferred" in text:
        return ElectLeaders((T0,))
    key, value = (UNCLEAN, "true") if "unclean" in text else (MIN_ISR, "1")
    return AlterTopicConfigs("t", (ConfigChange(key, ConfigOperation.SET, value),))


def test_the_document_has_the_table_of_the_module() -> None:
    assert rows_of_document() == rows_of_module()
    assert len(rows_of_module()) > 30


@pytest.mark.parametrize("row", rows_of_module(), ids=lambda row: f"{row.state}; {row.event}")
def test_each_row_of_the_table_is_what_the_controller_decides(row: Row) -> None:
    before = parsed(row.state)
    metadata = Metadata(before, live=numbers(row.live), config={MIN_ISR: "2"})
    metadata.submit(event_of(row.event, before))
    wanted, _, epoch = row.after.partition(", new ")
    after = parsed(wanted)
    changed = metadata.state
    assert changed.unknown_fields == before.unknown_fields
    assert (changed.leader, changed.isr, changed.eligible) == (
        after.leader,
        after.isr,
        after.eligible,
    )
    assert changed.suspects == after.suspects
    assert changed.offline_replicas == after.offline_replicas
    assert changed.leader_epoch == EPOCH + (epoch == "epoch")
    assert changed.partition_epoch == PARTITION_EPOCH + (row.state != row.after)
