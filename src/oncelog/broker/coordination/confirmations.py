"""Replies of a coordinator that wait until it is known that this broker led when it decided them.

A coordinator that was paused, or is cut off, may have been replaced without knowing it. Its appends
are never committed then, so what rests on one of its own is never told. A decision without an
append (OffsetFetch, a heartbeat, a description, a refusal by the state) would tell what is no more:
an old offset, by which a batch is processed twice. So its reply waits until the ISR has confirmed
that this broker leads (`oncelog.replication.leader`): one round serves all that wait.

A reply that cannot be confirmed is an error by which clients look for their coordinator and ask
again. Its decision changed nothing durable, so that nothing happens twice. Imported with the first
such reply where the partition has other replicas.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from oncelog.broker.partitions.delayed import Drop
from oncelog.broker.partitions.partition import Partition
from oncelog.coordinator.output import Output
from oncelog.coordinator.shard import Reply
from oncelog.core.cluster_limits import CONFIRMATION_WAIT_MS_MAX
from oncelog.core.errors import ErrorCode

__all__ = ["Confirmations"]


class Confirmations:
    """The replies of one shard that wait."""

    __slots__ = ("_loop", "_partition")

    def __init__(self, partition: Partition, loop: asyncio.AbstractEventLoop) -> None:
        self._partition = partition
        self._loop = loop

    def hold(self, output: Output[Any, Any]) -> None:
        """Take the unconfirmed replies out of an output; send them once they are confirmed."""
        unconfirmed = set(output.unconfirmed)
        held = [reply for reply in output.replies if reply.token in unconfirmed]
        output.replies[:] = [reply for reply in output.replies if reply.token not in unconfirmed]
        if held:
            _HeldReplies(held).wait(self._partition, self._loop)


class _HeldReplies:
    """The replies of one output."""

    __slots__ = ("_drop", "_replies", "_timer")

    def __init__(self, replies: Sequence[Reply[Any]]) -> None:
        self._replies = replies
        self._drop: Drop | None = None
        self._timer: asyncio.TimerHandle | None = None

    def wait(self, partition: Partition, loop: asyncio.AbstractEventLoop) -> None:
        """Send them when they are confirmed, which may be at once."""
        self._drop = partition.on_confirmed(self._settled)
        if self._drop is not None:
            self._timer = loop.call_later(CONFIRMATION_WAIT_MS_MAX / 1000, self._expired)

    def _settled(self, error: ErrorCode) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if error is ErrorCode.none:
            for token, value in self._replies:
                _promise(token).complete(value)
        elif error is ErrorCode.not_enough_replicas:
            self._refuse(ErrorCode.coordinator_not_available)
        else:
            self._refuse(ErrorCode.not_coordinator)

    def _expired(self) -> None:
        assert self._drop is not None
        self._drop()
        self._refuse(ErrorCode.coordinator_not_available)

    def _refuse(self, error: ErrorCode) -> None:
        for token, _ in self._replies:
            _promise(token).fail(error)


def _promise(token: Any) -> Any:
    """The promise that `CoordinatorContext.ask` was given."""
    return token
