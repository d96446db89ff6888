"""Asks the other brokers for a sign of life while this one is the controller.

`oncelog.controller.reach` judges what comes back. Where no broker answers, the office is given up:
no other broker could ask it for a decision, and one of them takes it. The broker's session goes on,
and so do the partitions that it leads.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Final

from oncelog.broker.controller.office import Office
from oncelog.broker.membership.feed import MetadataFeed
from oncelog.broker.peers.connections import PeerNetwork, Peers
from oncelog.controller.reach import LEFT_MS_MAX, ROUNDS_COUNT, ROUNDS_PER_SESSION_COUNT, ReachJudge
from oncelog.core.errors import OncelogError
from oncelog.metadata.store import StoreFailure
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages.api_versions import ApiVersionsRequest
from oncelog.runtime.clock import Clock

__all__ = ["ReachWatch"]

log = logging.getLogger(__name__)

_REQUEST: Final = ApiVersionsRequest()
_VERSION: Final = 0
"""Every broker answers it, to anyone."""


class ReachWatch:
    """Asks in rounds, each a share of a session's timeout long; `run` is its one task."""

    def __init__(
        self,
        broker_id: int,
        office: Office,
        feed: MetadataFeed,
        network: PeerNetwork,
        session_timeout_ms: int,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._broker_id = broker_id
        self._office = office
        self._feed = feed
        self._clock = clock
        self._round_ms = session_timeout_ms / ROUNDS_PER_SESSION_COUNT
        self._reach = ReachJudge()
        self._peers = Peers(
            network,
            f"broker-{broker_id}-reach",
            lambda: feed.known.stored,
            self._round_ms,
            clock,
            rng,
        )

    async def run(self) -> None:
        """Ask while this broker holds the office, or has left it, until cancelled."""
        try:
            while True:
                revision = self._feed.known.stored.revision
                if self._reach.is_asked(
                    is_held=self._office.is_held, others_count=len(self._others())
                ):
                    began_ms = self._clock.monotonic_ms()
                    await self._round()
                    spent_ms = self._clock.monotonic_ms() - began_ms
                    await self._clock.sleep(max(0.0, self._round_ms - spent_ms))
                else:
                    await self._feed.moved_past(revision)
        finally:
            await self._peers.close()

    async def _round(self) -> None:
        others = self._others()
        answers = await asyncio.gather(*map(self._answers, others))
        must_resign = self._reach.judge(
            self._clock.monotonic_ms(),
            is_held=self._office.is_held,
            others_count=len(others),
            answered_count=sum(answers),
        )
        if must_resign:
            log.warning(
                "none of %d other brokers has answered for %.0f s: this broker gives up the "
                "controller's office, and leaves it to others for at most %.0f s",
                *(len(others), ROUNDS_COUNT * self._round_ms / 1000, LEFT_MS_MAX / 1000),
            )
        was_left, self._office.is_left = self._office.is_left, self._reach.is_left
        try:
            if self._office.is_left:
                # Also where the answer to an attempt was lost.
                await self._office.resign()
            elif was_left:
                log.info("this broker takes the controller's office again when it is free")
                await self._office.look()
        except StoreFailure as failure:
            self._feed.health.failed(failure)

    async def _answers(self, broker_id: int) -> bool:
        try:
            await self._peers.ask(broker_id, ApiKey.API_VERSIONS, _VERSION, _REQUEST)
        except (OncelogError, OSError):
            return False
        return True

    def _others(self) -> list[int]:
        return [each for each in self._feed.known.stored.brokers if each != self._broker_id]
