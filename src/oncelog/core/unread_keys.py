"""The config keys that are accepted and shown, but that no code reads so far.

Made by `python -m tests.support.configuration` from what the sources read.
"""

from typing import Final

__all__ = ["UNREAD_BROKER_KEYS", "UNREAD_TOPIC_KEYS"]

UNREAD_BROKER_KEYS: Final[frozenset[str]] = frozenset(
    {
        "broker.heartbeat.interval.ms",
        "controller.quota.window.num",
        "controller.quota.window.size.seconds",
        "quota.window.num",
        "quota.window.size.seconds",
    }
)

UNREAD_TOPIC_KEYS: Final[frozenset[str]] = frozenset()
