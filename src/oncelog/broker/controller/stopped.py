"""Has an event decided on in the metadata of a broker that does not run, by itself.

For what has to be there before the broker serves: the first user's credentials, say.
"""

from __future__ import annotations

import random
from typing import TypeVar

from oncelog.broker.controller.cluster import find_cluster
from oncelog.broker.membership.known_metadata import KnownMetadata
from oncelog.controller.decision import ControllerEvent, DecisionContext
from oncelog.controller.decisions import decide
from oncelog.controller.image import MetadataImage
from oncelog.core.config import BrokerConfig
from oncelog.metadata.store import MetadataStore, Write
from oncelog.runtime.ids import fresh_kafka_uuid

__all__ = ["decide_stopped", "read_stopped"]

ReplyT = TypeVar("ReplyT")


async def read_stopped(store: MetadataStore, known_id: str | None) -> MetadataImage:
    """Return what a store says; a new one is named as a start does. See `find_cluster`.

    Raises `OncelogError` for a store that cannot be read, or that is of another cluster.
    """
    return (await _known(store, known_id)).stored


async def decide_stopped(
    store: MetadataStore, known_id: str | None, event: ControllerEvent[ReplyT]
) -> ReplyT:
    """Decide on an event and write what is decided. Raises `OncelogError` as above.

    `Conflict` where a broker has written meanwhile: it runs.
    """
    known = await _known(store, known_id)
    decision = decide(known.stored, event, DecisionContext(BrokerConfig()))
    writes = [Write(*put, known.version_of(put.path)) for put in decision.writes]
    if writes:
        await store.write_all(writes)
    return decision.reply


async def _known(store: MetadataStore, known_id: str | None) -> KnownMetadata:
    fresh_id = fresh_kafka_uuid(random.SystemRandom())
    has_logs = known_id is not None
    cluster_id = await find_cluster(store, known_id, fresh_id, has_logs=has_logs)
    known = KnownMetadata(store, broker_id=-1)
    known.belongs_to(cluster_id)
    await known.read()
    return known
