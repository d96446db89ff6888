"""Asks a coordinator as soon as another broker names it: few clients ask within milliseconds.

What it asks changes nothing. The answer is looked at where the coordinator gives it (`naming.py`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Final

from oncelog.controller.image import ImageDelta
from oncelog.core.errors import OncelogError
from oncelog.core.ids import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from oncelog.peer.connection import Connection
from oncelog.protocol.api import ApiKey
from oncelog.protocol.hashing import coordinator_partition
from oncelog.protocol.messages.end_txn import EndTxnRequest
from oncelog.protocol.messages.heartbeat import HeartbeatRequest
from oncelog.simulation.process import Process

__all__ = ["NameUser"]

TIMEOUT_MS: Final = 2_000
HEARTBEAT_VERSION: Final = 3
END_TXN_VERSION: Final = 3


class NameUser:
    """A client; `address_of` returns where a broker that serves is reached."""

    def __init__(
        self, process: Process, address_of: Callable[[int], tuple[str, int] | None]
    ) -> None:
        self._process = process
        self._address_of = address_of
        self._asked: set[tuple[str, int, int]] = set()

    def applied(self, named_by: int, delta: ImageDelta) -> None:
        """Ask those that a broker names from now on, each once in a leadership."""
        for change in delta.assigned():
            name, partitions = change.topic.name, change.topic.partitions
            if name not in (CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC):
                continue
            for number in change.partitions:
                leader, epoch = partitions[number].leader, partitions[number].leader_epoch
                if leader == named_by or (name, number, epoch) in self._asked:
                    continue
                self._asked.add((name, number, epoch))
                if (address := self._address_of(leader)) is not None:
                    id_ = _id_in(number, len(partitions))
                    self._process.spawn(self._ask(address, name, id_))

    async def _ask(self, address: tuple[str, int], topic: str, id_: str) -> None:
        with contextlib.suppress(OncelogError, OSError):
            connection = await Connection.open(
                self._process.network,
                *address,
                client_id=self._process.name,
                request_timeout_ms=TIMEOUT_MS,
                connect_timeout_ms=TIMEOUT_MS,
            )
            try:
                if topic == CONSUMER_OFFSETS_TOPIC:
                    beat = HeartbeatRequest(group_id=id_, generation_id=1, member_id="none")
                    await connection.send(ApiKey.HEARTBEAT, HEARTBEAT_VERSION, beat)
                else:
                    end = EndTxnRequest(transactional_id=id_, producer_id=1, producer_epoch=0)
                    await connection.send(ApiKey.END_TXN, END_TXN_VERSION, end)
            finally:
                connection.close()


def _id_in(number: int, count: int) -> str:
    """Return an unused id that is coordinated in this partition."""
    tried = 0
    while coordinator_partition(f"unused-{tried}", count) != number:
        tried += 1
    return f"unused-{tried}"
