"""Sends events to the broker that is the controller, and asks all others what they have applied.

Kafka forwards the client's request, in an Envelope, to be authorized again. Here the broker that
has the client authorizes it, and what only the controller can do is sent as an event.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Final, TypeVar

from oncelog.broker.controller.office import EventVerdict
from oncelog.broker.membership.feed import MetadataFeed
from oncelog.broker.membership.registration import ClusterMembership
from oncelog.broker.peers.connections import PeerNetwork, Peers, PeerUnreachable
from oncelog.controller.decision import ControllerEvent
from oncelog.controller.event_codec import MalformedEvent, decode_reply, encode_event
from oncelog.core.cluster_limits import (
    APPLIED_LOOK_MS,
    APPLIED_WAIT_MS_MAX,
    CATCH_UP_MS_MAX,
)
from oncelog.core.config import BrokerConfig
from oncelog.core.errors import ErrorCode, OncelogError, ProtocolError
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages.applied_revision import AppliedRevisionRequest
from oncelog.protocol.messages.controller_event import (
    ControllerEventRequest,
    ControllerEventResponse,
)
from oncelog.runtime.clock import Clock
from oncelog.runtime.framed import DisconnectedError

__all__ = ["Forwarding"]

ReplyT = TypeVar("ReplyT")

_ROLES: Final = 0
"""The version of AppliedRevision that does not wait for folders."""
_FOLDERS: Final = 1
"""The one that does."""

HEADER_BYTES_MAX: Final = 1024
"""What is around an event in its request: the header, broker id and epoch."""


class Forwarding:
    """The way of events to another broker."""

    def __init__(
        self,
        network: PeerNetwork,
        config: BrokerConfig,
        feed: MetadataFeed,
        membership: ClusterMembership,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._feed = feed
        self._membership = membership
        self._clock = clock
        # The other brokers' own is not known here: one that is smaller closes the connection.
        self._request_bytes_max = config.get_int("socket.request.max.bytes") - HEADER_BYTES_MAX
        self._peers = Peers(
            network,
            f"broker-{membership.broker_id}",
            lambda: feed.known.stored,
            config.get_int("controller.socket.timeout.ms"),
            clock,
            rng,
        )
        self._waits: set[asyncio.Task[None]] = set()
        """Each waits for what another broker has applied."""
        self._late: set[int] = set()
        """Brokers that changes no longer wait for, until they have answered."""
        # A broker of an earlier version closes the connection: no event may be lost by it.
        self._applied_peers = Peers(
            network,
            f"broker-{membership.broker_id}-applied",
            lambda: feed.known.stored,
            APPLIED_WAIT_MS_MAX,
            clock,
            rng,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._peers.close()
        await self._applied_peers.close()
        for task in self._waits:
            task.cancel()
        if self._waits:
            await asyncio.wait(self._waits)

    async def reach_everywhere(self, revision: int) -> set[int]:
        """Wait until every other registered broker has applied the metadata of `revision`.

        Returns the brokers that have not said so within `APPLIED_WAIT_MS_MAX`.
        """
        behind = self._others()

        async def wait(broker_id: int) -> None:
            # One that registers again reads the metadata before it serves.
            while broker_id in self._feed.known.stored.brokers:
                if await self._applied_revision(broker_id, revision, _ROLES) >= revision:
                    break
                await self._clock.sleep(APPLIED_LOOK_MS)
            behind.discard(broker_id)

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(APPLIED_WAIT_MS_MAX / 1000):
                await asyncio.gather(*map(wait, sorted(behind)))
        return behind

    async def reach_others(self, revision: int) -> None:
        """Wait until the other brokers serve what `revision` says, for `CATCH_UP_MS_MAX` at most.

        One that does not answer is not waited for: it tells no client anything either. Nor is one
        that is late, until it has answered: a change costs no time because another one did.
        """

        async def wait(broker_id: int) -> None:
            while -1 < await self._applied_revision(broker_id, revision, _FOLDERS) < revision:
                await self._clock.sleep(APPLIED_LOOK_MS)
            self._late.discard(broker_id)

        waits = {}
        for broker_id in sorted(self._others() - self._late):
            task = waits[broker_id] = asyncio.create_task(wait(broker_id))
            self._waits.add(task)
            task.add_done_callback(self._waits.discard)
        if waits:
            await asyncio.wait(waits.values(), timeout=CATCH_UP_MS_MAX / 1000)
        self._late.update(broker_id for broker_id, task in waits.items() if not task.done())

    def _others(self) -> set[int]:
        return set(self._feed.known.stored.brokers) - {self._membership.broker_id}

    async def _applied_revision(self, broker_id: int, revision: int, version: int) -> int:
        """Return how far a broker is, which reads up to `revision` first; -1: it does not say."""
        request = AppliedRevisionRequest(revision=revision)
        try:
            response = await self._applied_peers.ask(
                broker_id, ApiKey.APPLIED_REVISION, version, request
            )
        except (OncelogError, OSError):
            return -1
        return response.revision

    async def send(
        self, controller_id: int, event: ControllerEvent[ReplyT]
    ) -> EventVerdict[ReplyT]:
        """Have the controller decide on an event.

        `broker_not_available`: it may have taken effect; there is no answer, or another broker is
        the controller now.
        """
        try:
            data = encode_event(event)
        except MalformedEvent as error:
            return EventVerdict(None, ErrorCode.message_too_large, str(error))
        if len(data) > self._request_bytes_max:
            text = (
                f"{len(data)} bytes, at most {self._request_bytes_max} (socket.request.max.bytes)"
            )
            return EventVerdict(None, ErrorCode.message_too_large, text)
        request = ControllerEventRequest(
            broker_id=self._membership.broker_id,
            broker_epoch=self._membership.broker_epoch,
            event=data,
        )
        loop = asyncio.get_running_loop()
        asking = loop.create_task(
            self._peers.ask(controller_id, ApiKey.CONTROLLER_EVENT, 0, request)
        )
        replaced = loop.create_task(self._replaced(controller_id))
        try:
            await asyncio.wait({asking, replaced}, return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                text = f"broker {controller_id} is not the controller any more"
                return EventVerdict(None, ErrorCode.broker_not_available, text)
            return self._verdict(event, asking.result())
        except PeerUnreachable as error:
            return EventVerdict(None, ErrorCode.not_controller, str(error))
        except DisconnectedError as error:
            return EventVerdict(None, ErrorCode.broker_not_available, str(error))
        except (MalformedEvent, ProtocolError) as error:
            text = f"broker {controller_id} has answered what cannot be read: {error}"
            return EventVerdict(None, ErrorCode.broker_not_available, text)
        finally:
            asking.cancel()
            replaced.cancel()

    def _verdict(
        self, event: ControllerEvent[ReplyT], response: ControllerEventResponse
    ) -> EventVerdict[ReplyT]:
        reply = decode_reply(event, response.reply) if response.reply else None
        return EventVerdict(reply, response.error_code, response.error_message, response.revision)

    async def _replaced(self, controller_id: int) -> None:
        """Return once another broker is the controller, or none."""
        while True:
            image = self._feed.known.stored
            if image.controller_id != controller_id:
                return
            await self._feed.moved_past(image.revision)
