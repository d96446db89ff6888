"""Handles DescribeClientQuotas (48), versions 0-1: finds the quotas of users and clients (KIP-546).

Filters are checked as in Kafka: an unknown entity type gets UNSUPPORTED_VERSION, a filter that
contradicts itself INVALID_REQUEST. Gap: there are no quotas of an ip.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from oncelog.broker.net.request import Request
from oncelog.core.errors import ErrorCode
from oncelog.core.quotas import CLIENT_ID, IP, USER
from oncelog.core.quotas import DEFAULT as DEFAULT_NAME
from oncelog.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["handle"]

EXACT: Final = 0
DEFAULT: Final = 1
SPECIFIED: Final = 2

_ENTITY_TYPES: Final = frozenset({IP, USER, CLIENT_ID})


def handle(
    context: Context, request: Request[DescribeClientQuotasRequest]
) -> DescribeClientQuotasResponse:
    """Return the quotas that a filter names, or the filter's error."""
    body = request.body
    error, text = _problem(body.components)
    if error is not ErrorCode.none:
        return DescribeClientQuotasResponse(error_code=error, error_message=text, entries=None)
    return DescribeClientQuotasResponse(
        entries=tuple(
            EntryData(
                entity=_entity(parts),
                values=tuple(ValueData(key=key, value=found[key]) for key in sorted(found)),
            )
            for entity, found in context.image.client_quotas.items()
            if _is_meant(parts := entity.parts, body.components, is_strict=body.strict)
        )
    )


def _entity(parts: Mapping[str, str]) -> tuple[EntityData, ...]:
    return tuple(
        EntityData(entity_type=kind, entity_name=None if name == DEFAULT_NAME else name)
        for kind, name in parts.items()
    )


def _is_meant(
    parts: Mapping[str, str], components: Sequence[ComponentData], *, is_strict: bool
) -> bool:
    """Whether an entity has all that the filter names; strict: and nothing else."""
    if is_strict and parts.keys() != {component.entity_type for component in components}:
        return False
    for component in components:
        name = parts.get(component.entity_type)
        if name is None:
            return False
        wanted = DEFAULT_NAME if component.match is None else component.match
        if component.match_type != SPECIFIED and name != wanted:
            return False
    return True


def _problem(components: Sequence[ComponentData]) -> tuple[ErrorCode, str | None]:
    seen: set[str] = set()
    for component in components:
        kind, match_type = component.entity_type, component.match_type
        if not kind:
            return ErrorCode.invalid_request, "Invalid empty entity type."
        if kind in seen:
            return (
                ErrorCode.invalid_request,
                f"Entity type {kind} cannot appear more than once in the filter.",
            )
        if kind not in _ENTITY_TYPES:
            return ErrorCode.unsupported_version, f"Unsupported entity type {kind}"
        if match_type not in (EXACT, DEFAULT, SPECIFIED):
            return ErrorCode.invalid_request, f"Unknown match type {match_type}"
        if (match_type == EXACT) is (component.match is None):
            return ErrorCode.invalid_request, "The match string does not fit the match type."
        seen.add(kind)
    if IP in seen and len(seen) > 1:
        return ErrorCode.invalid_request, "An ip filter goes with no other entity type."
    return ErrorCode.none, None
