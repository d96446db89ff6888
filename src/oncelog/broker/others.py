"""What a broker asks of other brokers for transactions; built when a second one is registered.

Each kind of request has connections of its own, since the answers of a connection come in order:
none waits behind another kind that may wait for it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from oncelog.broker.coordination.remote_markers import make_cluster_leaders
from oncelog.broker.coordination.remote_verification import ClusterCoordinators
from oncelog.broker.membership.feed import MetadataFeed
from oncelog.broker.membership.registration import ClusterMembership
from oncelog.broker.peers.connections import PeerNetwork, Peers
from oncelog.core.cluster_limits import PEER_ANSWER_MS_MAX

if TYPE_CHECKING:
    from oncelog.broker.coordination.coordinators import TransactionRuntime

__all__ = ["OtherBrokers"]


class OtherBrokers:
    """The ways to other brokers. `on_bug` is called with what must not happen."""

    def __init__(
        self,
        membership: ClusterMembership,
        feed: MetadataFeed,
        network: PeerNetwork,
        rng: random.Random,
        transactions: TransactionRuntime,
        on_bug: Callable[[BaseException], None],
    ) -> None:
        clock = transactions.wall_clock

        self._verifying = Peers(
            network,
            f"broker-{membership.broker_id}-verification",
            lambda: feed.known.stored,
            PEER_ANSWER_MS_MAX,
            clock,
            rng,
        )
        self.coordinators = ClusterCoordinators(
            membership.broker_id,
            transactions,
            lambda: feed.known.image,
            self._verifying,
            rng.uniform,
            on_bug,
        )
        self.leaders = partial(
            make_cluster_leaders,
            membership=membership,
            feed=feed,
            network=network,
            clock=clock,
            rng=rng,
            stop_because=on_bug,
        )
        """Makes the way to the leaders on other brokers."""

    def apply(self) -> None:
        """Follow the metadata."""
        self.coordinators.apply()

    async def close(self) -> None:
        """End what waits for other brokers, and the connections."""
        await self.coordinators.close()
        await self._verifying.close()
