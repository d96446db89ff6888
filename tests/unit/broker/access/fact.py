"""One fact about what an API needs."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

from oncelog.protocol import codec
from oncelog.protocol.api import VERSIONS, ApiKey

TOPIC, GROUP, CLUSTER, ID = 29, 30, 31, 53
NOT_ATTEMPTED, UNKNOWN_TOPIC = 55, 3


def versions_of(api: ApiKey, since: int, until: int) -> range:
    """The versions that are served, from one to another."""
    first, last = VERSIONS[api]
    return range(max(first, since), min(last, until) + 1)


class Fact(NamedTuple):
    """One request, and who may send it."""

    api: ApiKey
    asked: dict[str, Any]
    rights: str
    """Exactly what is needed."""
    without: dict[str, dict[str, int]]
    """By right the errors of a client that has the others."""
    nothing: dict[str, int]
    """The errors of a client that has none."""
    still_asked: bool = False
    """Whether the handler is asked even then, for what is left."""
    since: int = 0
    until: int = 99

    @property
    def versions(self) -> range:
        return versions_of(self.api, self.since, self.until)

    @property
    def body(self) -> Any:
        return codec.request_class(self.api)(**self.asked)


def part(api: ApiKey, name: str, /, **fields: Any) -> Any:
    """An element of a message."""
    return getattr(import_module(f"oncelog.protocol.messages.{api.schema_name}"), name)(**fields)


def whole(api: ApiKey, need: str, errors: dict[str, int], **asked: Any) -> Fact:
    """A request with one need: without it nothing is served."""
    return Fact(api, asked, need, {need: errors}, errors)


def every(code: int, *parts: str) -> dict[str, int]:
    return dict.fromkeys(parts, code)
