"""The clients for callers without an event loop, from `oncelog.client.sync`."""

from oncelog.client.sync import Admin, Consumer, Producer

__all__ = ["Admin", "Consumer", "Producer"]
