"""Answers habits of other Kafka clients with one sentence: their methods, and their loops.

The base classes here are empty for type checkers, which find such a name by themselves.
"""

import asyncio
import inspect
import re
from typing import TYPE_CHECKING, ClassVar, Final, NoReturn

from oncelog.client.settings import Role
from oncelog.client.settings.elsewhere import METHODS
from oncelog.core.spelling import nearest

__all__ = ["AsyncHints", "Hints", "ReaderHints", "SyncHints", "is_in_coroutine"]

_NEAR: Final = 0.75
"""How similar a name must be to be suggested: a wrong suggestion costs more than none."""

_CAPITAL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class Hints:
    """A client that knows what others call its methods. `role`: which client it is."""

    _role: ClassVar[Role]

    def __init_subclass__(cls, role: Role | None = None) -> None:
        super().__init_subclass__()
        if role is not None:
            cls._role = role

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            who = type(self).__name__
            text = f"{who} has no {name}"
            if not name.startswith("_"):
                # Java's names have capitals.
                snake = _CAPITAL.sub("_", name).lower()
                public = [each for each in dir(type(self)) if not each.startswith("_")]
                if found := METHODS[self._role].get(snake):
                    text += f": {found}"
                elif near := nearest(name, public, _NEAR):
                    text += f": did you mean {near[0]}?"
            raise AttributeError(text, name=name, obj=self)


class AsyncHints(Hints):
    """An asyncio client, for callers that treat it as a blocking one."""

    if not TYPE_CHECKING:

        def __enter__(self) -> NoReturn:
            who = type(self).__name__
            raise TypeError(f"{who} needs `async with`; `with` is for oncelog.sync.{who}")

        def __exit__(self, *exc_info: object) -> None:
            pass


class ReaderHints(AsyncHints):
    """An asyncio consumer, for callers that iterate over it."""

    if not TYPE_CHECKING:

        def __aiter__(self) -> NoReturn:
            raise TypeError(
                "poll returns lists: `for record in await consumer.poll()`, inside of a loop"
            )

        def __iter__(self) -> NoReturn:
            raise TypeError(
                "poll returns lists: `for record in await consumer.poll()`, inside of a loop; only "
                "oncelog.sync.Consumer can be iterated over"
            )


class SyncHints(Hints):
    """A blocking client, for callers that await it."""

    if not TYPE_CHECKING:

        def __aenter__(self) -> NoReturn:
            who = type(self).__name__
            raise TypeError(f"sync.{who} needs `with`; `async with` is for oncelog.{who}")

        def __aexit__(self, *exc_info: object) -> None:
            pass


def is_in_coroutine() -> bool:
    """Whether a coroutine or a callback of the running event loop has called the caller.

    A cell of a notebook has not, although the notebook's loop runs it: it is code of a module.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    frame = inspect.currentframe()
    frame = frame and frame.f_back
    while frame is not None:
        code = frame.f_code
        if not code.co_flags & inspect.CO_OPTIMIZED:
            return False
        if code.co_flags & inspect.CO_COROUTINE:
            return True
        if frame.f_globals.get("__name__", "").startswith("asyncio."):
            return True
        frame = frame.f_back
    return False
