"""Tells the other brokers of the store where clients reach this one."""

from __future__ import annotations

from oncelog.controller import layout
from oncelog.controller.image import BrokerImage
from oncelog.metadata.changes import change_value
from oncelog.metadata.store import MetadataStore

__all__ = ["register_address"]


async def register_address(store: MetadataStore, broker: BrokerImage) -> None:
    """Write the broker's address unless it is there. No other broker writes it: it needs no fence.

    Raises `StoreFailure`.
    """
    value = layout.encode_broker(broker)
    await change_value(store, layout.broker_path(broker.broker_id), lambda _: value)
