"""Judges what became of a group whose consumers were killed: pure, from what was noted and logged.

`GroupHistory` holds what was seen: the ends of the partitions, the records that were processed, the
commits in the order of `__consumer_offsets`. Invariant: INV-8, whose violation a commit that goes
back shows.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

OFFSET_COMMIT_KEYS = (0, 1)
FINDINGS_COUNT_MAX = 20


@dataclass(slots=True)
class GroupHistory:
    """All that one run left behind."""

    ends: Mapping[int, int]
    """Partition -> its log end offset."""
    processed: Counter[tuple[int, int]] = field(default_factory=Counter)
    """(partition, offset) -> how many members processed it."""
    commits: list[tuple[int, int]] = field(default_factory=list)
    """(partition, offset), in the order of the log."""
    refused_count: int = 0

    def read_notes(self, text: str) -> None:
        """Take in the notes of one process. A last line that has no end was never written."""
        for line in text.split("\n")[:-1]:
            kind, *words = line.split(" ")
            if kind == "processed":
                self.processed[int(words[0]), int(words[1])] += 1
            else:
                self.refused_count += 1

    def counts(self) -> dict[str, int]:
        """How much happened."""
        return {
            "records": sum(self.ends.values()),
            "processed": sum(self.processed.values()),
            "processed again": sum(self.processed.values()) - len(self.processed),
            "commits of a partition": len(self.commits),
            "commits refused": self.refused_count,
        }


def committed(key: bytes, value: bytes | None, group: str) -> tuple[int, int] | None:
    """The partition and offset that a record of `__consumer_offsets` commits for a group.

    None for any other record. Read without our own codec, which is under test.
    """
    (version,) = struct.unpack_from(">h", key)
    if version not in OFFSET_COMMIT_KEYS or value is None:
        return None
    named, at = _string(key, 2)
    _, at = _string(key, at)
    (partition,) = struct.unpack_from(">i", key, at)
    (offset,) = struct.unpack_from(">q", value, 2)
    return (partition, offset) if named == group else None


def _string(data: bytes, at: int) -> tuple[str, int]:
    (size,) = struct.unpack_from(">h", data, at)
    return data[at + 2 : at + 2 + size].decode(), at + 2 + size


def judge(history: GroupHistory) -> list[str]:
    """What is wrong, in sentences."""
    found = list(_missing(history)) + list(_going_back(history.commits))
    last = dict(history.commits)
    for partition, end in history.ends.items():
        if end and last.get(partition, 0) != end:
            found.append(f"partition {partition}: {last.get(partition)} is committed, {end} due")
    return found[:FINDINGS_COUNT_MAX]


def _missing(history: GroupHistory) -> Iterable[str]:
    for partition, end in history.ends.items():
        lost = [offset for offset in range(end) if (partition, offset) not in history.processed]
        if lost:
            yield f"partition {partition}: {len(lost)} not processed, the first is {lost[0]}"


def _going_back(commits: Iterable[tuple[int, int]]) -> Iterable[str]:
    last: dict[int, int] = {}
    for partition, offset in commits:
        if offset < last.get(partition, 0):
            yield f"INV-8: partition {partition}: {offset} was committed after {last[partition]}"
        last[partition] = offset
