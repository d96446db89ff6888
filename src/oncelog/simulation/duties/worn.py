"""Gives some transactional ids a first epoch that is almost the last one.

No run is long enough to use up 32,766 epochs. So the first record of an id whose name begins with
`WORN` is changed as if a broker of long ago had written it, and the answer with it.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Final

from oncelog.coordinator.shard import CoordinatorRecord, Reply
from oncelog.core.ids import ProducerEpoch
from oncelog.transaction.events import InitProducerIdReply, TransactionDecision

__all__ = ["FIRST_EPOCH", "WORN", "first_epoch", "worn"]

WORN: Final = "worn-"
FIRST_EPOCH: Final = 32_763
_EPOCH_AT: Final = 2 + 8
"""In the record's value, after version and producer id."""


def first_epoch(transactional_id: str) -> int:
    """Return the epoch that a new id begins with."""
    return FIRST_EPOCH if transactional_id.startswith(WORN) else 0


def worn(decision: TransactionDecision) -> TransactionDecision:
    """Return the decision that creates an id, with a high epoch."""
    (record,) = decision.records
    value = record.value or b""
    changed = value[:_EPOCH_AT] + struct.pack(">h", FIRST_EPOCH) + value[_EPOCH_AT + 2 :]
    replies = tuple(
        Reply(reply.token, replace(reply.value, producer_epoch=ProducerEpoch(FIRST_EPOCH)))
        if isinstance(reply.value, InitProducerIdReply)
        else reply
        for reply in decision.replies
    )
    return decision._replace(records=(CoordinatorRecord(record.key, changed),), replies=replies)
