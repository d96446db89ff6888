"""Handles DescribeAcls (29), versions 1-3: SECURITY_DISABLED, as Kafka without an authorizer.

Gap: ACLs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.net.request import Request
from oncelog.core.errors import ErrorCode
from oncelog.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["handle"]


def handle(context: Context, request: Request[DescribeAclsRequest]) -> DescribeAclsResponse:
    """Refuse the filter."""
    return DescribeAclsResponse(
        error_code=ErrorCode.security_disabled,
        error_message="No Authorizer is configured on the broker",
        resources=(),
    )
