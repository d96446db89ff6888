"""Asks the guard of a broker for one request, with a handler that notes whether it is reached."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass, replace
from types import SimpleNamespace
from typing import Any, NamedTuple
from uuid import UUID

from oncelog.broker.access import Guard
from oncelog.broker.apis.refusals import refusal, refused_parts
from oncelog.broker.net.request import Api, Request, RequestMeter
from oncelog.controller.image import MetadataImage, PartitionImage, TopicImage
from oncelog.core.acl import (
    CLUSTER_NAME,
    Acl,
    AclOperation,
    AclPermission,
    AuthorizerConfig,
    PatternType,
    ResourceType,
)
from oncelog.core.config import BrokerConfig
from oncelog.core.errors import ErrorCode
from oncelog.core.ids import CONSUMER_OFFSETS_TOPIC
from oncelog.protocol import codec
from oncelog.protocol.api import ApiKey
from oncelog.protocol.headers import parse_request_header
from oncelog.runtime.clock import SystemClock

USER = "app"
ID_OF = {"a": UUID(int=0xA), "b": UUID(int=0xB)}
"""The topics that exist, with two partitions each; so does `__consumer_offsets`."""
UNKNOWN_ID = UUID(int=0xC)


class Peer:
    """The connection of the user."""

    listener = "SASL"
    principal = USER
    peer_host = "10.0.0.1"
    client_software = ""

    def fail(self, reason: str) -> None:
        raise AssertionError(reason)

    def mute(self, duration_ms: float) -> None:
        raise AssertionError(duration_ms)


class Answered(NamedTuple):
    """What a client reads, and the request that the handler got, if it was reached."""

    response: Any
    body: Any
    more: tuple[Any, ...]

    @property
    def errors(self) -> dict[str, int]:
        """The code of each part that is refused, by what names it: ``topic/partition``."""
        return dict(errors_in(self.response))


def topic(name: str, topic_id: UUID) -> TopicImage:
    led = PartitionImage(leader=1, leader_epoch=0, isr=(1,), replicas=(1,))
    return TopicImage(name, topic_id, (led, led))


def context() -> Any:
    """The parts of a broker that the guard looks at."""
    named = {**ID_OF, CONSUMER_OFFSETS_TOPIC: UUID(int=0xF)}
    topics = [topic(*each) for each in named.items()]
    image = MetadataImage(cluster_id="c", topics=topics)
    return SimpleNamespace(image=image, config=BrokerConfig())


def right(text: str, permission: AclPermission = AclPermission.ALLOW) -> Acl:
    """An ACL by its operation, type and name: ``READ TOPIC a``; the cluster has none."""
    operation, kind, *name = text.split()
    return Acl(
        ResourceType[kind],
        name[0] if name else CLUSTER_NAME,
        PatternType.LITERAL,
        f"User:{USER}",
        "*",
        AclOperation[operation],
        permission,
    )


def rights(text: str) -> list[Acl]:
    return [right(each) for each in text.split(", ") if each]


def by_id(acls: Iterable[Acl]) -> dict[str, Acl]:
    """As the metadata has them."""
    return {str(number): acl for number, acl in enumerate(acls)}


async def ask(api: ApiKey, version: int, asked: Any, allowed: str, served: Any = None) -> Answered:
    """Have the guard of a broker with these rights handle one request, encoded and decoded.

    The handler serves all that it is asked for, or returns `served`.
    """
    reached: list[Any] = []

    def handle(_context: Any, request: Request[Any], *more: Any) -> object:
        reached.append((request.body, more))
        if served is not None:
            return served
        whole: Any = refusal(request, ErrorCode.none)
        if api is ApiKey.OFFSET_DELETE:
            return replace(whole, topics=refused_parts(request, request.body, ErrorCode.none))
        return whole

    plain = Api(api, handle, reads_bytes=False)
    acls = by_id(rights(allowed))
    found = Guard(SystemClock(), lambda: acls, AuthorizerConfig()).asking(lambda _: plain)(api)
    assert found is not None
    frame = codec.encode_request(api, version, 7, "client", asked)
    header = parse_request_header(frame)
    body = codec.parse_request(api, version, frame, header.body_offset)
    value = found.handle(context(), Request(RequestMeter(found, version), header, body, Peer()))
    encoded = codec.encode_response(api, version, 7, value)
    _, offset = codec.parse_response_header(api, version, encoded)
    response = codec.parse_response(api, version, encoded, offset)
    return Answered(response, *(reached[0] if reached else (None, ())))


_LABELS = (
    "name",
    "topic",
    "topic_name",
    "group_id",
    "key",
    "transactional_id",
    "resource_name",
    "user",
    "topic_id",
    "producer_id",
    "partition_index",
    "partition",
    "partition_id",
)


def errors_in(node: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, int]]:
    for field in fields(node):
        value = getattr(node, field.name)
        if isinstance(value, ErrorCode) and value is not ErrorCode.none:
            yield "/".join(path), int(value)
        elif isinstance(value, tuple):
            for each in value:
                if is_dataclass(each):
                    yield from errors_in(each, (*path, _label(each)))


def _label(part: Any) -> str:
    names = [getattr(part, name, None) for name in _LABELS]
    return next((str(name) for name in names if name not in (None, "")), "")
