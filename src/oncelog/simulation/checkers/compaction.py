"""Checks what compaction removed."""

from __future__ import annotations

from collections.abc import Iterator

from oncelog.simulation.checkers.anomaly import Anomaly, found
from oncelog.simulation.checkers.evidence import Evidence

__all__ = ["compactions"]


def compactions(evidence: Evidence) -> Iterator[Anomaly]:
    """Compaction removes only aborted and obsolete records, and tombstones.

    A record is obsolete if a newer one with its key is committed, and in the log as it was written.
    A loss of power excuses nothing, because the newer record is synced before the older one is
    removed. Excused: a flipped bit, for which recovery may have cut the newer record off. A
    partition that was not read to its end is not judged.
    """
    allowed = "what was synced was damaged" if evidence.promise.damage_s else ""
    for partition, records in evidence.final.compacted.items():
        if partition in evidence.final.unread:
            continue
        newest = {r.key: r.offset for r in records if r.outcome == "committed"}
        for record in records:
            if not record.is_removed or record.outcome == "aborted":
                continue
            what = ""
            if not record.outcome:
                what = "compaction removed a record of an open transaction"
            elif record.key is None:
                what = "compaction removed a record without a key"
            elif newest[record.key] == record.offset and not record.is_tombstone:
                what = "compaction removed the newest record of a key"
            if what:
                yield found(
                    "compaction",
                    what,
                    f"{record.key!r} at {partition}@{record.offset}",
                    at_s=evidence.end_s,
                    topic_partition=partition,
                    offset=record.offset,
                    allowed=allowed,
                )
