"""Checks the order of transactions, by their writes and reads, for cycles.

Kafka isolates readers from open transactions; it does not isolate writers from each other. So most
cycles of writes are no defect, and only those that Kafka excludes are anomalies.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from oncelog.core.ids import TopicPartition
from oncelog.simulation.checkers.anomaly import Anomaly, found
from oncelog.simulation.checkers.evidence import Evidence, Txn
from oncelog.simulation.checkers.excuses import Excuses
from oncelog.simulation.checkers.late_requests import LateRequests

__all__ = ["g0", "g1c"]


def g0(evidence: Evidence) -> Iterator[Anomaly]:
    """Write cycles: of two transactions each wrote before the other, on different partitions.

    Between different producers that is allowed, and reported so: open transactions interleave. One
    producer's transactions follow each other, so on every partition the earlier one's records
    precede the later one's. Excused: an epoch was granted again after power took its first grant.
    """
    excuses = Excuses(evidence)
    edges: dict[Txn, set[Txn]] = defaultdict(set)
    for partition, log in evidence.logs.items():
        before: Txn | None = None
        last: dict[str, Txn] = {}
        for offset, record in log.shown:
            txn = record.transaction if record is not None else None
            if txn is None:
                continue
            if before is not None and before is not txn:
                edges[before].add(txn)
            before = txn
            earlier = last.setdefault(txn.client, txn)
            if txn.number < earlier.number:
                allowed = excuses.late(record, offset) if record is not None else ""
                yield _out_of_order(evidence, partition, offset, earlier, txn, allowed)
            last[txn.client] = txn
    for cycle in _cycles(edges):
        yield found(
            "G0",
            "transactions wrote before each other",
            ", ".join(txn.name for txn in cycle[:6]) + (" ..." if len(cycle) > 6 else ""),
            at_s=evidence.end_s,
            who=cycle[0].client,
            values=tuple(txn.records[0].value for txn in cycle[:20]),
            allowed="Kafka does not isolate writers: open transactions may interleave",
        )


def _out_of_order(
    evidence: Evidence,
    partition: TopicPartition,
    offset: int,
    earlier: Txn,
    txn: Txn,
    allowed: str,
) -> Anomaly:
    return found(
        "G0",
        "a producer's transactions are out of order",
        f"{partition}@{offset} is of {txn.name}, behind one of {earlier.name}",
        at_s=evidence.end_s,
        who=txn.client,
        topic_partition=partition,
        offset=offset,
        values=(txn.records[0].value, earlier.records[0].value),
        allowed=allowed,
    )


def g1c(evidence: Evidence) -> Iterator[Anomaly]:
    """Cycles of information: a transaction that read another's records precedes it nowhere.

    A copy names the record that its transaction read. Two transactions never read from each other,
    and on the partition of a copy the transaction of its source precedes it, because it had ended
    before the read. Excused: power took a marker, and the next marker ended two transactions; a
    late EndTxn of a TV1 client. Not judged is a copy of an offset that may have gone to another
    record since.
    """
    excuses, late = Excuses(evidence), LateRequests(evidence)
    edges: dict[Txn, set[Txn]] = defaultdict(set)
    last_of = _last_offsets(evidence)
    for copy, partition, offset in evidence.copies:
        log = evidence.logs.get(partition)
        source = log.record_at(offset) if log is not None else None
        if source is None or source.transaction is None or not copy.shown:
            continue
        reader, writer = copy.transaction, source.transaction
        if reader is None or reader is writer:
            continue
        if excuses.between(copy.sent_s, evidence.end_s, partition):
            # The log has lost its tail since: the copied record may have been another one.
            continue
        if source.shown:
            edges[writer].add(reader)
        behind = last_of.get((writer, copy.topic_partition), -1)
        if behind > copy.shown[0]:
            yield found(
                "G1c",
                "a copy stands before its source's transaction",
                f"{copy.value} at {copy.topic_partition}@{copy.shown[0]}, read from "
                f"{writer.name}, which also wrote @{behind}",
                at_s=evidence.end_s,
                who=copy.value.client,
                topic_partition=copy.topic_partition,
                offset=copy.shown[0],
                values=(copy.value, source.value),
                allowed=late.excuse(writer, copy.sent_s)
                or excuses.coordinator(0.0, evidence.end_s),
            )
    for cycle in _cycles(edges):
        yield found(
            "G1c",
            "transactions read from each other",
            ", ".join(txn.name for txn in cycle[:6]),
            at_s=evidence.end_s,
            who=cycle[0].client,
            values=tuple(txn.records[0].value for txn in cycle[:20]),
        )


def _last_offsets(evidence: Evidence) -> dict[tuple[Txn, TopicPartition], int]:
    if not evidence.copies:
        return {}
    return {
        (record.transaction, partition): offset
        for partition, log in evidence.logs.items()
        for offset, record in log.shown
        if record is not None and record.transaction is not None
    }


def _cycles(edges: Mapping[Txn, set[Txn]]) -> Iterator[list[Txn]]:
    """Return the strongly connected components of several transactions (Tarjan, not recursive).

    Sets of objects have no fixed order, so successors are sorted by client and number.
    """
    order = {node: sorted(after, key=_key) for node, after in edges.items()}
    index: dict[Txn, int] = {}
    low: dict[Txn, int] = {}
    stack: list[Txn] = []
    on_stack: set[Txn] = set()
    for root in sorted(edges, key=_key):
        if root in index:
            continue
        work = [(root, 0)]
        while work:
            node, next_index = work.pop()
            if next_index == 0:
                index[node] = low[node] = len(index)
                stack.append(node)
                on_stack.add(node)
            after = order.get(node, [])
            if next_index > 0:
                low[node] = min(low[node], low[after[next_index - 1]])
            while next_index < len(after) and after[next_index] in index:
                if after[next_index] in on_stack:
                    low[node] = min(low[node], index[after[next_index]])
                next_index += 1
            if next_index < len(after):
                work += [(node, next_index + 1), (after[next_index], 0)]
                continue
            if low[node] == index[node]:
                members: list[Txn] = []
                while not members or members[-1] is not node:
                    members.append(stack.pop())
                    on_stack.discard(members[-1])
                if len(members) > 1:
                    yield sorted(members, key=_key)


def _key(txn: Txn) -> tuple[str, int]:
    return txn.client, txn.number
