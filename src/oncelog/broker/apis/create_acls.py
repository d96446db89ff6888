"""Handles CreateAcls (30), versions 1-3: SECURITY_DISABLED, as Kafka without an authorizer.

Gap: ACLs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.net.request import Request
from oncelog.core.errors import ErrorCode
from oncelog.protocol.messages.create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["handle"]


def handle(context: Context, request: Request[CreateAclsRequest]) -> CreateAclsResponse:
    """Refuse every ACL."""
    refused = AclCreationResult(
        error_code=ErrorCode.security_disabled,
        error_message="No Authorizer is configured.",
    )
    return CreateAclsResponse(results=(refused,) * len(request.body.creations))
