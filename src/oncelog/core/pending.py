"""`Pending`: the promise of a response that a handler cannot return at once.

A coordinator's shard, a high watermark or a deadline completes it once, with its own type of
result; `convert` turns that into the response when the connection sends it. No future, task or
second promise is involved.

`holds_back` says which of the two kinds of waiting it is (D13): the later requests of the
connection wait as well, or only their replies do. When the connection closes it drops the promise:
the answer is lost, and `on_drop` cancels the request if it is still undecided (D7). A request that
was decided still takes effect.

Pure: it must not know of loops, connections or messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from oncelog.core.errors import ErrorCode, InvariantViolation

__all__ = ["Pending", "after", "gather", "unchanged"]


ResultT = TypeVar("ResultT")
ResponseT = TypeVar("ResponseT")
ResponseT_co = TypeVar("ResponseT_co", covariant=True)
PartT = TypeVar("PartT")


class Pending(Generic[ResponseT_co]):
    """The promise of one request's response. Compared by identity.

    Its type names the response. Only its completer and `convert` know the type of the result.
    """

    __slots__ = (
        "_refuse",
        "_waiter",
        "convert",
        "done",
        "dropped",
        "holds_back",
        "on_drop",
        "result",
    )

    def __init__(
        self,
        convert: Callable[[ResultT], ResponseT_co | Pending[ResponseT_co]],
        *,
        holds_back: bool,
        refuse: Callable[[ErrorCode], ResponseT_co | Pending[ResponseT_co]] | None = None,
    ) -> None:
        self.convert: Callable[[Any], ResponseT_co | Pending[ResponseT_co]] = convert
        self._refuse = refuse
        self.holds_back = holds_back
        self.done = False
        self.dropped = False
        self.result: object = None
        self.on_drop: Callable[[], None] | None = None
        self._waiter: Callable[[], None] | None = None

    def complete(self, result: object) -> None:
        """Complete it with the result.

        The waiter is called within this call. A dropped promise ignores the result.

        Raises `InvariantViolation` when it was completed before.
        """
        if self.dropped:
            return
        if self.done:
            raise InvariantViolation("D13: a request was answered twice")
        self.done = True
        self.result = result
        # Both may refer to this promise: what is done leaves no circle for the collector.
        waiter, self._waiter, self.on_drop = self._waiter, None, None
        if waiter is not None:
            waiter()

    def fail(self, error: ErrorCode) -> None:
        """Complete it with an error, of which `refuse` makes the response."""
        if self.dropped:
            return
        if self._refuse is None:
            raise InvariantViolation("a promise that can fail is made with its refusal")
        self.convert = self._refuse
        self.complete(error)

    def wait(self, waiter: Callable[[], None]) -> None:
        """Call `waiter` when it is completed, at once if it is. It has one waiter at a time."""
        if self.done:
            waiter()
        else:
            self._waiter = waiter

    def response(self) -> ResponseT_co | Pending[ResponseT_co]:
        """Convert the result to a response, or to another `Pending`."""
        if not self.done:
            raise InvariantViolation("a response is made of a result")
        return self.convert(self.result)

    def drop(self) -> None:
        """Drop it: its connection is closed. An undecided request is cancelled."""
        if self.done or self.dropped:
            return
        self.dropped = True
        on_drop, self.on_drop, self._waiter = self.on_drop, None, None
        self.convert, self._refuse = unchanged, None
        if on_drop is not None:
            on_drop()


def unchanged(result: ResultT) -> ResultT:
    """The `convert` of a promise whose result is the response itself."""
    return result


def after(
    first: Pending[PartT], convert: Callable[[], ResponseT | Pending[ResponseT]]
) -> Pending[ResponseT]:
    """Return a promise of what `convert` makes once `first` is completed, with its response.

    It holds back what `first` holds back, and dropping it drops `first`.
    """
    later: Pending[ResponseT] = Pending(lambda _: convert(), holds_back=first.holds_back)
    later.on_drop = first.drop
    first.wait(lambda: later.complete(None))
    return later


def gather(
    parts: Sequence[PartT | Pending[PartT]],
    convert: Callable[[list[PartT]], ResponseT | Pending[ResponseT]],
    *,
    holds_back: bool,
) -> Pending[ResponseT]:
    """Return one promise for several: `convert` gets their responses, in the order of `parts`.

    A part that is no `Pending` is a response itself. Dropping the whole drops every part.
    """

    def responses(_: object) -> ResponseT | Pending[ResponseT]:
        found: list[PartT] = []
        for part in parts:
            response = part.response() if isinstance(part, Pending) else part
            if isinstance(response, Pending):
                raise InvariantViolation("a part of several promises may not lead to another one")
            found.append(response)
        return convert(found)

    whole = Pending(responses, holds_back=holds_back)
    missing = [part for part in parts if isinstance(part, Pending) and not part.done]
    if not missing:
        whole.complete(None)
        return whole
    missing_count = len(missing)

    def one_is_there() -> None:
        nonlocal missing_count
        missing_count -= 1
        if missing_count == 0:
            whole.complete(None)

    def drop_all() -> None:
        for part in missing:
            part.drop()

    whole.on_drop = drop_all
    for part in missing:
        part.wait(one_is_there)
    return whole
