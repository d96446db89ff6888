"""Handles DescribeClientQuotas (48), versions 0-1: finds nothing, because there are no quotas.

Filters are checked as in Kafka: an unknown entity type gets UNSUPPORTED_VERSION, a filter that
contradicts itself INVALID_REQUEST. Gap: quotas; AlterClientQuotas is not announced, so that clients
fail before they send it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from oncelog.broker.net.request import Request
from oncelog.core.errors import ErrorCode
from oncelog.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["handle"]

EXACT: Final = 0
DEFAULT: Final = 1
SPECIFIED: Final = 2

_IP = "ip"
_ENTITY_TYPES: Final = frozenset({_IP, "user", "client-id"})


def handle(
    context: Context, request: Request[DescribeClientQuotasRequest]
) -> DescribeClientQuotasResponse:
    """Return no quotas, or the filter's error."""
    error, text = _problem(request.body.components)
    return DescribeClientQuotasResponse(
        error_code=error,
        error_message=text,
        entries=() if error is ErrorCode.none else None,
    )


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
    if _IP in seen and len(seen) > 1:
        return ErrorCode.invalid_request, "An ip filter goes with no other entity type."
    return ErrorCode.none, None
