"""The session of a broker with the metadata store, and its registration there.

A registration begins a life of the broker, whose number is the broker epoch. It goes with the
session, which ends after the store has received no sign of this process for a while. A process
whose session has ended while it lived begins another life.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from oncelog.broker.membership.feed import MetadataFeed
from oncelog.controller import layout
from oncelog.controller.image import BrokerImage, MetadataImage
from oncelog.core.errors import OncelogError
from oncelog.core.limits import METADATA_WRITE_ATTEMPTS_MAX
from oncelog.metadata.store import (
    Conflict,
    MetadataStore,
    Session,
    SessionExpired,
    SessionId,
    StoreFailure,
    Write,
)

__all__ = ["Beside", "BrokerIdTaken", "ClusterMembership", "Describe"]

log = logging.getLogger(__name__)

Describe = Callable[[MetadataImage], BrokerImage]
"""Returns the registration; its epoch is the last one that this broker knows of."""
Beside = Callable[[SessionId], Sequence[Write]]
"""Returns what is written in one step with a registration, by what is known then."""


class BrokerIdTaken(OncelogError):  # noqa: N818 - names what was found
    """Another process has this broker's id since the session of this one ended.

    Two processes would lead what the metadata gives to one broker.
    """


class ClusterMembership:
    """The session and the registration of one broker. `register` is called by one task at a time.

    `may_take_over` is asked with the epoch of a registration that is still there: whether it is
    known to be a dead life of this very broker.
    """

    def __init__(
        self,
        broker_id: int,
        store: MetadataStore,
        feed: MetadataFeed,
        session_timeout_ms: int,
        may_take_over: Callable[[int], bool],
    ) -> None:
        self.broker_id = broker_id
        self.broker_epoch = -1
        """The number of this life; -1 before the first registration."""
        self._store = store
        self._feed = feed
        self._session_timeout_ms = session_timeout_ms
        self._may_take_over = may_take_over
        self.session: Session | None = None
        """That of the present life; it may have ended."""

    @property
    def is_alive(self) -> bool:
        """Whether the session of the present life has not ended, as far as this broker knows."""
        return self.session is not None and self.session.is_alive

    @property
    def session_id(self) -> SessionId | None:
        """The session, while it is alive."""
        session = self.session
        return None if session is None or not session.is_alive else session.session_id

    async def register(self, describe: Describe, beside: Beside) -> BrokerImage:
        """Begin a life; return the registration as it is in the store.

        Waits while another life of the broker is registered that may not be over. Raises
        `StoreFailure`, and `BrokerIdTaken` where one that is registered began after this one did.
        """
        has_said = False
        attempts_count = 0
        while attempts_count < METADATA_WRITE_ATTEMPTS_MAX:
            session = await self._open_session()
            await self._feed.read()
            image = self._feed.known.stored
            broker = describe(image)
            held = image.brokers.get(self.broker_id)
            # One of this very process may be there too: the answer to its write was lost.
            is_own = held is None or held.incarnation == broker.incarnation
            if held is not None and not is_own and held.broker_epoch > self.broker_epoch > -1:
                raise BrokerIdTaken(
                    f"another process is registered as broker {self.broker_id} (epoch "
                    f"{held.broker_epoch}): each broker needs a node.id of its own"
                )
            if held is not None and not is_own and not self._may_take_over(held.broker_epoch):
                if not has_said:
                    log.info(
                        "broker %d is registered still (epoch %d): waiting for its session to end",
                        *(self.broker_id, held.broker_epoch),
                    )
                    has_said = True
                await self._feed.next()
                continue
            last_epoch = max(image.broker_epochs.get(self.broker_id, 0), broker.broker_epoch)
            registered = replace(broker, broker_epoch=last_epoch + 1)
            writes = [*self._writes(registered, session), *beside(session)]
            attempts_count += 1
            try:
                await self._store.write_all(writes)
                await self._feed.read()
            except (Conflict, SessionExpired):
                continue
            self.broker_epoch = registered.broker_epoch
            return registered
        raise StoreFailure("the broker cannot be registered: too many brokers write at once")

    async def wait_ended(self) -> None:
        """Return once the session has ended."""
        if self.session is not None:
            await self.session.wait_ended()

    async def leave(self) -> None:
        """End the session, and with it the registration."""
        session, self.session = self.session, None
        if session is not None:
            try:
                await session.close()
            except StoreFailure as failure:
                log.warning("the session with the store is left to end by itself: %s", failure)

    async def _open_session(self) -> SessionId:
        if self.session is None or not self.session.is_alive:
            self.session = await self._store.open_session(self._session_timeout_ms)
        return self.session.session_id

    def _writes(self, broker: BrokerImage, session: SessionId) -> list[Write]:
        known = self._feed.known
        path = layout.broker_path(self.broker_id)
        epoch_path = layout.broker_epoch_path(self.broker_id)
        epoch = layout.encode_number(broker.broker_epoch)
        return [
            Write(path, layout.encode_broker(broker), known.version_of(path), session),
            Write(epoch_path, epoch, known.version_of(epoch_path)),
        ]
