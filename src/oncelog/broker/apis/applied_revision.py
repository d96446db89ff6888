"""Handles AppliedRevision, versions 0-1: which revision of the metadata this broker answers from.

An API of Oncelog's, between its brokers: one that answers a client once a change is in force on all
brokers asks the others, again and again. A broker that does not know the revision reads the
metadata at once, and does not wait for the store's feed. No client is told of it by ApiVersions.

Version 1 waits for this broker's folders too, for a while: what it leads by then it serves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oncelog.broker.net.request import Request
from oncelog.metadata.store import StoreFailure
from oncelog.protocol.messages.applied_revision import (
    AppliedRevisionRequest,
    AppliedRevisionResponse,
)

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

_FOLDERS_SINCE: Final = 1


async def handle(
    context: Context, request: Request[AppliedRevisionRequest]
) -> AppliedRevisionResponse:
    """Apply what is known, and tell its revision."""
    feed = context.feed
    if request.version >= _FOLDERS_SINCE:
        await feed.catch_up()
        return AppliedRevisionResponse(revision=context.image.revision)
    try:
        if feed.known.stored.revision < request.body.revision:
            await feed.read()
        await feed.follow_roles()
    except StoreFailure as failure:
        feed.health.failed(failure)
    return AppliedRevisionResponse(revision=context.image.revision)
