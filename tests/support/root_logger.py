"""The root logger, which commands of ours set up when they run in the process of a test."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def root_logger_as_before() -> Iterator[None]:
    """Put back the handlers and the level of the root logger, and the level of ours."""
    root, ours = logging.getLogger(), logging.getLogger("oncelog")
    handlers, levels = list(root.handlers), (root.level, ours.level)
    try:
        yield
    finally:
        root.handlers = handlers
        root.setLevel(levels[0])
        ours.setLevel(levels[1])
