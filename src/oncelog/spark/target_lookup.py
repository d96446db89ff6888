"""Requests the topics that a sink may write to: their partition counts and size limits."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from oncelog.client.errors import ClientError
from oncelog.core.limits import INT32_MAX
from oncelog.spark.errors import TooLargeError, UsageError
from oncelog.spark.sink_options import SinkOptions
from oncelog.spark.targets import Targets

__all__ = ["TargetLookup"]

MISSING_TIMEOUT_S: Final = 10.0
"""A topic that the brokers do not know for this time counts as missing, as in the source.

A broker that has just started may not know its topics yet.
"""

MISSING_PAUSE_S: Final = 0.5


class TopicsOfCluster(Protocol):
    """The part of `oncelog.client.Admin` that the lookup uses."""

    async def list_topics(self) -> Mapping[str, Any]:
        """All topics by name."""

    async def describe_configs(self, topics: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        """The configs of topics."""


class TargetLookup:
    """Finds the targets of one run, and remembers the sizes that topics refused."""

    def __init__(self, options: SinkOptions, admin: TopicsOfCluster) -> None:
        self._options = options
        self._admin = admin
        self._size_limits: dict[str, int] = {}

    async def ask(self) -> Targets:
        """Return the partitions that may be written to now.

        Raises `UsageError` when a topic of the options stays missing for `MISSING_TIMEOUT_S`.
        """
        options = self._options
        topics = await self._admin.list_topics()
        wanted = (options.topic,) if options.topic is not None else options.topics
        if wanted is None:
            place = options.protocol.marker_partition
            own = None if place is None else place.topic
            wanted = tuple(
                sorted(n for n, topic in topics.items() if not topic.is_internal and n != own)
            )
        deadline_s = time.monotonic() + MISSING_TIMEOUT_S
        while missing := [name for name in wanted if name not in topics]:
            if time.monotonic() >= deadline_s:
                raise UsageError(
                    f"topic {missing[0]!r} does not exist; create it before the query starts"
                )
            await asyncio.sleep(MISSING_PAUSE_S)
            topics = await self._admin.list_topics()
        counts = tuple(len(topics[name].partitions) for name in wanted)
        return Targets(wanted, counts, await self._ask_size_limits(wanted))

    def limit_size(self, error: TooLargeError) -> None:
        """Halve the batches for a topic that refused one.

        Raises `UsageError` if the batch held one record, which no split makes smaller.
        """
        if error.record_count == 1:
            raise UsageError(
                f"topic {error.topic!r} refuses a record of {error.size} bytes; raise its "
                f"max.message.bytes or leave the row out"
            )
        self._size_limits[error.topic] = error.size // 2

    async def _ask_size_limits(self, topics: tuple[str, ...]) -> tuple[int, ...]:
        """Request each topic's ``max.message.bytes``; without permission refusals show it."""
        try:
            settings = await self._admin.describe_configs(topics)
        except ClientError:
            settings = {}
        limits = []
        for topic in topics:
            entry = settings.get(topic, {}).get("max.message.bytes")
            told = INT32_MAX if entry is None or entry.value is None else int(entry.value)
            limits.append(min(told, self._size_limits.get(topic, INT32_MAX)))
        return tuple(limits)
