"""The event loop that the process runs on: uvloop's where it is installed, else asyncio's own."""

import asyncio

from oncelog.runtime.clock import monotonic_s

__all__ = ["new_event_loop"]


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A fresh loop, for `asyncio.Runner(loop_factory=new_event_loop)`."""
    try:
        import uvloop
    except ImportError:
        loop = asyncio.new_event_loop()
        # asyncio's own asks the module `time`, which tests replace; uvloop asks the system.
        loop.time = monotonic_s  # type: ignore[method-assign]
        return loop
    return uvloop.new_event_loop()
