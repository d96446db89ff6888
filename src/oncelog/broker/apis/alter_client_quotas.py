"""Handles AlterClientQuotas (49), versions 0-1: sets and removes quotas (KIP-546).

Each entity's change is made or refused by itself. Gap: there are no quotas of an ip (rates of
connections), which get INVALID_REQUEST.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.net.request import Request
from oncelog.controller.events import AlterClientQuotas, QuotaAlteration, QuotaChange
from oncelog.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    QuotaEntryDataResponse,
)

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["handle"]


async def handle(
    context: Context, request: Request[AlterClientQuotasRequest]
) -> AlterClientQuotasResponse:
    """Change the quotas; return what became of each entity's."""
    body = request.body
    alterations = tuple(
        QuotaAlteration(
            tuple((part.entity_type, part.entity_name) for part in entry.entity),
            tuple(QuotaChange(op.key, None if op.remove else repr(op.value)) for op in entry.ops),
        )
        for entry in body.entries
    )
    outcomes = await context.controller.submit(AlterClientQuotas(alterations, body.validate_only))
    return AlterClientQuotasResponse(
        entries=tuple(
            QuotaEntryDataResponse(
                error_code=outcome.error, error_message=outcome.message, entity=entry.entity
            )
            for entry, outcome in zip(body.entries, outcomes, strict=True)
        )
    )
