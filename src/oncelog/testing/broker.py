"""`ControlledBroker`: an embedded broker in which a test injects faults.

The broker is the shipped one. This package provides its clock and its disk, and its handlers are
looked up here while a fault of a request is set.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping

from oncelog.broker.broker import Broker
from oncelog.broker.embedded import EmbeddedBroker
from oncelog.broker.embedded_hints import hinting
from oncelog.controller.topics import TopicToCreate
from oncelog.core.config import BrokerConfig
from oncelog.core.errors import ErrorCode
from oncelog.runtime.network import Network
from oncelog.testing.clock import ControlledClock
from oncelog.testing.disk import ControlledDisk, Killed
from oncelog.testing.faults import Faults

__all__ = ["ControlledBroker"]


class ControlledBroker(EmbeddedBroker):
    """An `EmbeddedBroker` in which `faults` injects faults on demand."""

    @hinting
    def __init__(
        self,
        data_dir: str | os.PathLike[str] | None = None,
        *,
        port: int = 0,
        config: Mapping[str, object] | None = None,
        secure: bool = False,
    ) -> None:
        super().__init__(data_dir, port=port, config=config, secure=secure)
        self.clock = ControlledClock()
        self.faults = Faults(self)
        self._disk = ControlledDisk()
        self._death: _Death | None = None
        self._network: Network | None = None
        """The network of the next life; None: the system's."""

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        config: Mapping[str, object] | None = None,
        *,
        replication_factor: int = -1,
    ) -> None:
        """Create a topic and wait until it is usable. Raises `ValueError` with the reason."""
        settings: dict[str, str | None] = {key: str(v) for key, v in (config or {}).items()}

        async def create() -> None:
            new = TopicToCreate(name, partitions, replication_factor, config=settings)
            (outcome,) = await self.broker.controller.create_topics([new])
            if outcome.error is not ErrorCode.none:
                raise ValueError(f"the topic {name} is not made: {outcome.message}")

        self.run(create())

    def delete_topic(self, name: str) -> None:
        """Delete a topic; clients no longer see it then. Raises `ValueError` with the reason."""

        async def delete() -> None:
            controller = self.broker.controller
            topic = self.broker.image.topic(name)
            error = ErrorCode.unknown_topic_or_partition
            if topic is not None:
                error = await controller.delete_topic(topic.topic_id)
            if error is not ErrorCode.none:
                raise ValueError(f"the topic {name} is not deleted: {error.name}")

        self.run(delete())

    def shut_down(self) -> None:
        """Stop the broker in order until `revive`; returns when it has stopped."""

        async def stop() -> None:
            self.dies(restart=False)
            death = self._death
            assert death is not None
            self.broker.request_stop()
            await death.is_down.wait()

        self.run(stop())

    def revive(self) -> None:
        """Start the broker again after a kill without restart; returns when it serves."""

        async def wake() -> None:
            death = self._death
            if death is not None:
                death.is_revived.set()
                await death.is_over.wait()

        self.run(wake())

    def config_of_expired(self) -> BrokerConfig:
        """Return the configs with a certificate that has expired. Raises `RuntimeError`."""
        _ = self._users  # There have to be some.
        return self._config(has_expired=True)

    def dies(self, restart: bool) -> None:
        """Called in the broker's loop when a fault kills the broker."""
        self._death = _Death()
        if restart:
            self._death.is_revived.set()

    def _make_broker(self, config: BrokerConfig) -> Broker:
        asyncio.get_running_loop().set_exception_handler(_tell_but_of_kills)
        syncs = not self._is_temporary
        self._disk = ControlledDisk(syncs=syncs)
        return Broker(
            config,
            clock=self.clock,
            disk=self._disk,
            network=self._network,
            store=self._open_store(),
            syncs=syncs,
        )

    async def _start_broker(self) -> Broker:
        broker = await super()._start_broker()
        death, self._death = self._death, None
        if death is not None:
            death.is_over.set()
        self.faults.attach(broker, self._disk)
        return broker

    async def _stop_broker(self) -> None:
        self.faults.detach()
        with contextlib.suppress(Killed):
            await super()._stop_broker()
        self._disk.close()

    async def _starts_again(self) -> bool:
        death = self._death
        if death is None:
            return False
        death.is_down.set()
        if not death.is_revived.is_set():
            self.faults.finish_kills()
            await death.is_revived.wait()
        return True

    def _request_stop(self) -> None:
        super()._request_stop()
        if self._death is not None:
            self._death.is_revived.set()


class _Death:
    """A broker that is down, or will be: whether it shall start again, and whether it has."""

    def __init__(self) -> None:
        self.is_down = asyncio.Event()
        self.is_revived = asyncio.Event()
        self.is_over = asyncio.Event()


def _tell_but_of_kills(loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    """Silence errors of a killed broker's tasks, which end silently in a killed process."""
    if not isinstance(context.get("exception"), Killed):
        loop.default_exception_handler(context)
