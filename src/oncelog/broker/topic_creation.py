"""Stores the topics that a request creates.

A write to the store waits for the disk, so all of them share one. It decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from oncelog.controller import layout
from oncelog.controller.topics import TopicOutcome
from oncelog.core.errors import ErrorCode
from oncelog.metadata.store import Check, Conflict, Fenced, MetadataStore, Write

__all__ = ["write_topics"]


async def write_topics(
    store: MetadataStore, decided: Sequence[TopicOutcome], fence: Check | None
) -> list[TopicOutcome]:
    """Store the topics of these outcomes; return the outcomes, with what was refused now.

    It is one atomic step, unless another writer has made one of them: then each has its own.
    """
    topics = [outcome.topic for outcome in decided if outcome.topic is not None]
    writes = [
        Write(layout.topic_path(topic.name), layout.encode_topic(topic), 0) for topic in topics
    ]
    try:
        await store.write_all(writes, fence=fence)
    except Conflict:
        if len(decided) > 1:
            parts = [await write_topics(store, (one,), fence) for one in decided]
            return [outcome for part in parts for outcome in part]
        message = f"Topic '{decided[0].name}' already exists."
        return [TopicOutcome(decided[0].name, ErrorCode.topic_already_exists, message)]
    except Fenced as fenced:
        refused = ErrorCode.not_controller
        return [
            one if one.topic is None else TopicOutcome(one.name, refused, str(fenced))
            for one in decided
        ]
    return list(decided)
