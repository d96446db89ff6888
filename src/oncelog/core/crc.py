"""CRC-32C by the extension module of the library fastcrc, without the rest of that library.

Its `__init__` imports a module of Python for each width of a checksum, which costs more than the
extension itself. It takes any buffer without a copy.
"""

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import TypeAlias

__all__ = ["crc32c"]

Crc32c: TypeAlias = Callable[..., int]
"""`crc32c(data, value=0)` of a buffer and of what came before it."""


def _loaded() -> Crc32c:
    package = find_spec("fastcrc")
    places = package.submodule_search_locations if package is not None else None
    spec = PathFinder.find_spec("fastcrc.fastcrc", places) if places else None
    if spec is None or spec.loader is None:
        # Another release, with its parts elsewhere.
        from fastcrc.crc32 import iscsi as found

        return found
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    function: Crc32c = module.crc32.iscsi
    return function


crc32c: Crc32c = _loaded()
