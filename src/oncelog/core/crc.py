"""CRC-32C by the extension module of the library crc32c, without the rest of that library.

Its `__init__` imports argparse too, and reads its own version from its installed metadata: a
seventh of what the import of `EmbeddedBroker` costs.
"""

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import TypeAlias

__all__ = ["crc32c"]

Crc32c: TypeAlias = Callable[..., int]
"""`crc32c(data, value=0)` of a buffer and of what came before it."""


def _loaded() -> Crc32c:
    package = find_spec("crc32c")
    places = package.submodule_search_locations if package is not None else None
    spec = PathFinder.find_spec("crc32c._crc32c", places) if places else None
    if spec is None or spec.loader is None:
        # Another release, with its parts elsewhere.
        from crc32c import crc32c as found

        return found
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    function: Crc32c = module.crc32c
    return function


crc32c: Crc32c = _loaded()
