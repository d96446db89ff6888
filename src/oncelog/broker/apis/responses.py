"""From a coordinator's answer to a handler's return value, in the two ways that D13 knows.

`in_order` holds back the later requests of the connection until the answer is there: right for
transactions, where the next request builds on this one. `meanwhile` lets them go on and holds back
replies only: right for JoinGroup and SyncGroup, which may wait for other members for minutes. Both
return the response itself when the answer is there at once, which is the usual case and needs no
task.
"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from oncelog.broker.apis import PendingReply
from oncelog.core.errors import ErrorCode, ProtocolError

if TYPE_CHECKING:
    from oncelog.broker.coordination.runtime import CoordinatorShell
    from oncelog.broker.net.connection import Connection

__all__ = [
    "NO_THROTTLE",
    "all_in_order",
    "ask",
    "each_once",
    "fenced_for_old",
    "in_order",
    "meanwhile",
]

NO_THROTTLE: Final = datetime.timedelta(0)

T = TypeVar("T")

Convert = Callable[[Any], Any]
Refuse = Callable[[ErrorCode], Any]


def in_order(
    shell: CoordinatorShell,
    id_: str,
    event: object,
    connection: Connection,
    convert: Convert,
    refuse: Refuse,
) -> Any | Awaitable[Any]:
    """Ask the shard of `id_`.

    `convert(result)` is the response, `refuse(error)` if this broker does not coordinate it.
    """
    try:
        answer = shell.request(id_, event, connection)
    except ProtocolError as error:
        return refuse(error.code)
    if answer.done():
        return convert(answer.result())
    return _later(answer, convert)


async def _later(answer: asyncio.Future[Any], convert: Convert) -> Any:
    return convert(await answer)


def meanwhile(
    shell: CoordinatorShell,
    id_: str,
    event: object,
    connection: Connection,
    convert: Convert,
    refuse: Refuse,
) -> Any | PendingReply:
    """As `in_order`, but later requests of the connection go on while this one waits."""
    try:
        answer = shell.request(id_, event, connection)
    except ProtocolError as error:
        return refuse(error.code)
    if answer.done():
        return convert(answer.result())
    reply = PendingReply()

    def settled(future: asyncio.Future[Any]) -> None:
        if not future.cancelled():
            reply.complete(convert(future.result()))

    answer.add_done_callback(settled)
    return reply


def each_once(items: Iterable[T], key: Callable[[T], object]) -> tuple[T, ...]:
    """The items in their order, each only where its key is met first.

    For requests whose elements ask for much: a frame of a megabyte that names one topic a hundred
    thousand times would otherwise be answered with gigabytes.
    """
    first: dict[object, T] = {}
    for item in items:
        first.setdefault(key(item), item)
    return tuple(first.values())


def fenced_for_old(error: ErrorCode, version: int, since: int) -> ErrorCode:
    """Name a fenced producer INVALID_PRODUCER_EPOCH to clients before `since` (KIP-588)."""
    if error is ErrorCode.producer_fenced and version < since:
        return ErrorCode.invalid_producer_epoch
    return error


def ask(
    shell: CoordinatorShell, id_: str, event: object, connection: Connection, refuse: Refuse
) -> asyncio.Future[Any]:
    """Ask the shard of `id_`, one of several that a request names.

    The future holds the machine's result, or `refuse(error)` if this broker does not coordinate it.
    """
    try:
        return shell.request(id_, event, connection)
    except ProtocolError as error:
        refused: asyncio.Future[Any] = shell.loop.create_future()
        refused.set_result(refuse(error.code))
        return refused


def all_in_order(answers: Sequence[asyncio.Future[Any]], convert: Convert) -> Any | Awaitable[Any]:
    """The response made of all answers: `convert(results)`, at once if they are all there."""
    if all(answer.done() for answer in answers):
        return convert([answer.result() for answer in answers])
    return _all_later(answers, convert)


async def _all_later(answers: Sequence[asyncio.Future[Any]], convert: Convert) -> Any:
    return convert(await asyncio.gather(*answers))
