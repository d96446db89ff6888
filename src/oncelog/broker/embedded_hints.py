"""Answers what people try with an `EmbeddedBroker` that it does not have, in one sentence."""

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NoReturn, ParamSpec

from oncelog.core.config_keys import BROKER_KEYS
from oncelog.core.spelling import nearest

__all__ = ["EmbeddedHints", "hinting"]

P = ParamSpec("P")

_BLOCK: Final = "`with` or `async with` starts and stops it"
_METHODS: Final = dict.fromkeys(("start", "stop", "shutdown", "close", "run_forever"), _BLOCK) | (
    dict.fromkeys(
        (
            "address",
            "bootstrap_server",
            "get_bootstrap_server",
            "get_bootstrap_servers",
            "host",
            "listeners",
            "port",
            "url",
        ),
        "its address is bootstrap_servers",
    )
)
_CONFIG: Final = "Kafka's keys go into config={...}"
_ADDRESS: Final = "it listens on 127.0.0.1, and port=9092 says where"
_SECURE: Final = "secure=True has it speak TLS, and clients log in"
_FOLDER: Final = "its folder is the first argument; without one it is temporary"
_KEYWORDS: Final = (
    dict.fromkeys(("settings", "configs", "configuration", "properties", "options"), _CONFIG)
    | dict.fromkeys(("address", "bootstrap_servers", "host", "listener", "listeners"), _ADDRESS)
    | dict.fromkeys(("auth", "sasl", "security", "ssl", "tls", "users"), _SECURE)
    | dict.fromkeys(("dir", "directory", "folder", "log_dir", "log_dirs", "path"), _FOLDER)
)
_HOST_AND_PORT: Final = re.compile(r"[\w.-]+:\d+")


class EmbeddedHints:
    """A broker that knows what others call its methods."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            text = f"{type(self).__name__} has no {name}"
            if not name.startswith("_"):
                public = [each for each in dir(type(self)) if not each.startswith("_")]
                if found := _METHODS.get(name):
                    text += f": {found}"
                elif near := nearest(name, public, 0.75):
                    text += f": did you mean {near[0]}?"
            raise AttributeError(text, name=name, obj=self)


def hinting(construct: Callable[P, None]) -> Callable[P, None]:
    """Have a constructor answer arguments that it does not have. Raises `TypeError`."""
    known = inspect.signature(construct).parameters.keys() - {"self"}

    @functools.wraps(construct)
    def constructed(*args: P.args, **kwargs: P.kwargs) -> None:
        for name in kwargs.keys() - known:
            raise TypeError(_unknown(name, known))
        folder = args[1] if len(args) > 1 else None
        if isinstance(folder, Mapping):
            raise TypeError(f"EmbeddedBroker takes a folder first: {_CONFIG}")
        if isinstance(folder, str) and _HOST_AND_PORT.fullmatch(folder):
            raise TypeError(f"EmbeddedBroker takes a folder first, not {folder!r}: {_ADDRESS}")
        construct(*args, **kwargs)

    return constructed


def _unknown(name: str, known: set[str]) -> str:
    key = name.replace("_", ".")
    if name in _KEYWORDS:
        hint = _KEYWORDS[name]
    elif key in BROKER_KEYS:
        hint = f'Kafka\'s keys go into config={{"{key}": ...}}'
    else:
        near = nearest(name, known)
        hint = f"did you mean {near[0]}?" if near else _CONFIG
    return f"EmbeddedBroker has no argument {name}: {hint}"
