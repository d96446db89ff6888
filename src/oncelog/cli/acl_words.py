"""Reads what `oncelog acls` is told: who may do what to which resource."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import click
from click.shell_completion import CompletionItem

from oncelog.core.acl import (
    CLUSTER_NAME,
    AclOperation,
    PatternType,
    ResourceType,
    parse_host,
    supported_operations,
)
from oncelog.core.spelling import nearest

__all__ = ["ANY", "HOST", "OPERATIONS", "PRINCIPAL", "RESOURCE", "Resource", "operations_on"]

ANY: Final = "any"
"""Any operation, or any resource, in place of one."""

_TYPES: Final[Mapping[str, ResourceType]] = {
    one.name.lower().replace("_", "-"): one for one in ResourceType if one > ResourceType.ANY
}
_OPERATIONS: Final[Mapping[str, AclOperation]] = {
    one.name.replace("_", ""): one for one in AclOperation if one > AclOperation.ANY
}
_BUNDLES: Final[Mapping[str, Mapping[ResourceType, tuple[AclOperation, ...]]]] = {
    "produce": {
        ResourceType.TOPIC: (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE),
        ResourceType.TRANSACTIONAL_ID: (AclOperation.WRITE, AclOperation.DESCRIBE),
    },
    "consume": {
        ResourceType.TOPIC: (AclOperation.READ, AclOperation.DESCRIBE),
        ResourceType.GROUP: (AclOperation.READ,),
    },
}
"""What `kafka-acls --producer` and `--consumer` set."""


class Resource(NamedTuple):
    """The resources that an argument names."""

    resource_type: ResourceType
    name: str | None
    pattern_type: PatternType


class _PrincipalParam(click.ParamType[str]):
    name = "user"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        return text if ":" in text else f"User:{text}"


class _HostParam(click.ParamType[str]):
    name = "address"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            if value != "*" and isinstance(parse_host(str(value)), str):
                raise ValueError(f"{value!r} is no address")
        except ValueError as error:
            self.fail(f"{error}: name an IP address, a network (10.0.0.0/8) or *", param, ctx)
        return str(value)


class _OperationsParam(click.ParamType[tuple[str, ...]]):
    name = "operations"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Complete the last of the names."""
        before, comma, begun = incomplete.rpartition(",")
        names = sorted(
            {*_BUNDLES, *(one.name.lower().replace("_", "-") for one in _OPERATIONS.values())}
        )
        return [CompletionItem(before + comma + name) for name in names if name.startswith(begun)]

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        words = tuple(word.strip().lower() for word in str(value).split(","))
        for word in words:
            if word not in _BUNDLES and word != ANY and _plain(word) not in _OPERATIONS:
                known = [*(one.name.lower().replace("_", "-") for one in _OPERATIONS.values())]
                meant = nearest(word, [*known, *_BUNDLES])
                hint = f"did you mean {meant[0]}?" if meant else f"one of {', '.join(known)}"
                self.fail(f"{word!r} is no operation: {hint}", param, ctx)
        return words


class _ResourceParam(click.ParamType[Resource]):
    name = "resource"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Resource:
        if isinstance(value, Resource):
            return value
        text = str(value)
        if text == ANY:
            return Resource(ResourceType.ANY, None, PatternType.ANY)
        kind, _, name = text.partition(":")
        found = _TYPES.get(kind.lower().replace("_", "-"))
        if found is ResourceType.CLUSTER and name in ("", CLUSTER_NAME):
            return Resource(found, CLUSTER_NAME, PatternType.LITERAL)
        if found is None or not name:
            self.fail(
                f"{text!r} names no resource: write topic:NAME, topic:PREFIX*, topic:* for all, "
                "group:NAME, transactional-id:NAME or cluster",
                param,
                ctx,
            )
        if name.endswith("\\*"):
            return Resource(found, f"{name[:-2]}*", PatternType.LITERAL)
        if name.endswith("*") and name != "*":
            return Resource(found, name[:-1], PatternType.PREFIXED)
        return Resource(found, name, PatternType.LITERAL)


PRINCIPAL: Final = _PrincipalParam()
HOST: Final = _HostParam()
OPERATIONS: Final = _OperationsParam()
RESOURCE: Final = _ResourceParam()


def operations_on(words: tuple[str, ...], resource: Resource) -> tuple[AclOperation, ...]:
    """Return the operations that words mean on a resource. Raises `BadParameter`.

    As `kafka-acls`, it refuses an operation that a resource of the type does not have.
    """
    found: dict[AclOperation, None] = {}
    for word in words:
        if word in _BUNDLES:
            some = _BUNDLES[word].get(resource.resource_type)
            if some is None:
                kinds = " and a ".join(one.name.lower().replace("_", " ") for one in _BUNDLES[word])
                raise click.BadParameter(f"{word} is about a {kinds}")
            found |= dict.fromkeys(some)
            continue
        operation = AclOperation.ANY if word == ANY else _OPERATIONS[_plain(word)]
        if operation > AclOperation.ALL and resource.resource_type is not ResourceType.ANY:
            supported = supported_operations(resource.resource_type)
            if operation not in supported:
                names = ", ".join(one.name.lower().replace("_", "-") for one in sorted(supported))
                kind = resource.resource_type.name.lower().replace("_", " ")
                raise click.BadParameter(f"a {kind} has no operation {word}: it has {names}, all")
        found[operation] = None
    return tuple(found)


def _plain(word: str) -> str:
    return word.upper().replace("-", "").replace("_", "")
