"""Handles DeleteAcls (31), versions 1-3: SECURITY_DISABLED, as Kafka without an authorizer.

Gap: ACLs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.net.request import Request
from oncelog.core.errors import ErrorCode
from oncelog.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["handle"]


def handle(context: Context, request: Request[DeleteAclsRequest]) -> DeleteAclsResponse:
    """Refuse every filter."""
    refused = DeleteAclsFilterResult(
        error_code=ErrorCode.security_disabled,
        error_message="No Authorizer is configured.",
        matching_acls=(),
    )
    return DeleteAclsResponse(filter_results=(refused,) * len(request.body.filters))
