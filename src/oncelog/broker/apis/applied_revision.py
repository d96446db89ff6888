"""Handles AppliedRevision, version 0: which revision of the metadata this broker answers from.

An API of Oncelog's, between its brokers: one that answers a client once a change is in force on all
brokers asks the others, again and again. A broker that does not know the revision reads the
metadata at once, and does not wait for the store's feed. No client is told of it by ApiVersions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.net.request import Request
from oncelog.metadata.store import StoreFailure
from oncelog.protocol.messages.applied_revision import (
    AppliedRevisionRequest,
    AppliedRevisionResponse,
)

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context


async def handle(
    context: Context, request: Request[AppliedRevisionRequest]
) -> AppliedRevisionResponse:
    """Apply what is known, but for the folders, and tell its revision."""
    feed = context.feed
    try:
        if feed.known.stored.revision < request.body.revision:
            await feed.read()
        await feed.follow_roles()
    except StoreFailure as failure:
        feed.health.failed(failure)
    return AppliedRevisionResponse(revision=context.image.revision)
