"""What listens at an address: Oncelog, Apache Kafka, another broker, or no broker at all."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from oncelog.cli.connecting import keywords
from oncelog.cli.tool import reason_of

if TYPE_CHECKING:
    from oncelog.client import Admin

__all__ = ["Kind", "Listening", "kind_of_broker", "what_listens"]

PATIENCE_MS: Final = 2_000
"""A broker on this machine answers much earlier."""


class Kind(Enum):
    """Who it is."""

    NOBODY = "nothing"
    ONCELOG = "Oncelog"
    APACHE_KAFKA = "Apache Kafka"
    OTHER_BROKER = "a broker that speaks Kafka's protocol"
    NO_BROKER = "something that does not answer as a broker"


class Listening(NamedTuple):
    """Who listens, how many brokers its cluster has, or why it is taken for no broker."""

    kind: Kind
    broker_count: int = 0
    reason: str = ""


async def what_listens(host: str, port: int) -> Listening:
    """Ask what listens there who it is. Raises nothing."""
    from oncelog.client import Admin, Role
    from oncelog.core.errors import OncelogError

    if not await _is_anyone_there(host, port):
        return Listening(Kind.NOBODY)
    servers = f"{host}:{port}"
    own = keywords(
        Role.ADMIN,
        client_id="oncelog-doctor",
        timeout_ms=PATIENCE_MS,
        request_timeout_ms=PATIENCE_MS,
        connection_setup_timeout_ms=PATIENCE_MS,
    )
    try:
        async with Admin(servers, **own) as admin:
            return await _broker(admin)
    except OncelogError as error:
        text = getattr(error, "message", "") or str(error)
        return Listening(Kind.NO_BROKER, reason=reason_of(text, servers))


async def _is_anyone_there(host: str, port: int) -> bool:
    try:
        async with asyncio.timeout(PATIENCE_MS / 1000):
            _, writer = await asyncio.open_connection(host, port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


async def _broker(admin: Admin) -> Listening:
    from oncelog.client import ClientError

    nodes = (await admin.describe_cluster()).nodes
    features: Mapping[str, object] = {}
    configs: Iterable[str] = ()
    try:
        features = await admin.describe_features()
        name = str(nodes[0].node_id)
        configs = (await admin.describe_configs([name], "broker"))[name]
    except ClientError:
        # Older brokers have no features, and a user may not be allowed to read settings.
        pass
    return Listening(kind_of_broker(features, configs), len(nodes))


def kind_of_broker(features: Iterable[str], configs: Iterable[str]) -> Kind:
    """Judge by the names of its features and settings."""
    if any(name.startswith("oncelog.") for name in configs):
        return Kind.ONCELOG
    if "metadata.version" in features:
        return Kind.APACHE_KAFKA
    return Kind.OTHER_BROKER
