"""Modules that are imported at the first use of what is in them.

A message class costs about a millisecond to make, and a broker's start needs few of them. This
module must not know any message.
"""

from importlib import import_module
from typing import Any

__all__ = ["lazy_module"]


class _LazyModule:
    """Stands for a module; an attribute is looked up there once and kept here."""

    def __init__(self, name: str) -> None:
        self.__name = name

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(import_module(self.__name), attribute)
        setattr(self, attribute, value)
        return value


def lazy_module(name: str) -> Any:
    """The module `name`, imported when the first of its attributes is asked for.

    For type checkers import it under `TYPE_CHECKING` as well.
    """
    return _LazyModule(name)
