"""Somebody who asks for a group's offsets all the while, and what it may have seen (INV-6).

An offset of a transaction may show from the moment on at which its client asked to commit it, and
not before; that of an aborted one never. Between the answer to TxnOffsetCommit and EndTxn nobody
who requires stable offsets is answered at all. The checkers judge the stable answers by real time
as well; these rules need no model.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from oncelog.client import requests
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import TopicPartition
from oncelog.protocol.api import ApiKey
from oncelog.runtime.framed import DisconnectedError
from oncelog.simulation.context import ClientContext
from oncelog.simulation.history import (
    History,
    OffsetsFetched,
    TransactionEnding,
    TransactionOffsets,
)
from oncelog.simulation.peers.flavors import FLAVORS
from oncelog.simulation.peers.wire import GROUP, LostError, PeerWire

__all__ = ["WITNESS", "early", "watch"]

WITNESS: Final = "witness"
PAUSE_MS: Final = 2
BY_NAME_VERSION_MAX: Final = 9
NOTHING: Final = -1


async def watch(context: ClientContext, group_id: str, partition: TopicPartition) -> None:
    """Ask without and with require_stable, in turn, until the process ends."""
    wire = PeerWire(context, FLAVORS["java"])
    while True:
        for stable in (False, True):
            await _ask(context, wire, group_id, partition, stable=stable)
        await context.clock.sleep(PAUSE_MS)


async def _ask(
    context: ClientContext,
    wire: PeerWire,
    group_id: str,
    partition: TopicPartition,
    *,
    stable: bool,
) -> None:
    address = await wire.coordinator(GROUP, group_id)
    if address is None:
        await context.back_off()
        return
    asked_s = context.now_s()
    request = requests.offset_fetch_request(group_id, [partition], stable)
    try:
        answer = await wire.ask(
            ApiKey.OFFSET_FETCH, request, to=address, at_most=BY_NAME_VERSION_MAX
        )
    except (LostError, DisconnectedError):
        await context.back_off()
        return
    code, offsets = requests.offsets_of(answer)
    if code is ErrorCode.none:
        shown = {at: value.offset for at, value in offsets.items()}
        context.record(OffsetsFetched, group_id, shown, asked_s, stable)


def early(history: History, partition: TopicPartition) -> Iterator[str]:
    """What the witness saw too early, or saw go away."""
    asked = {e.transaction: e.at_s for e in history.of(TransactionEnding) if e.commit}
    ends = {e.transaction: e.at_s for e in history.of(TransactionEnding)}
    added = [e for e in history.of(TransactionOffsets) if partition in e.offsets]
    newest = NOTHING
    for seen in history.of(OffsetsFetched):
        if seen.who != WITNESS:
            continue
        offset = seen.offsets.get(partition, NOTHING)
        from_s = [
            asked[e.transaction]
            for e in added
            if e.offsets[partition] == offset and e.transaction in asked
        ]
        if offset != NOTHING and seen.at_s < min(from_s, default=float("inf")):
            yield f"INV-6: {offset} is shown at {seen.at_s:.6f}, before it was to be committed"
        if offset < newest:
            yield f"INV-6: {offset} is shown at {seen.at_s:.6f}, after {newest}"
        newest = max(newest, offset)
        for e in added:
            if seen.stable and e.at_s < seen.asked_s and seen.at_s < ends.get(e.transaction, 0.0):
                yield f"INV-6: {offset} was called stable at {seen.at_s:.6f}, in a transaction"
