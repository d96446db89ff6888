"""DescribeAcls (29), versions 1-3: SECURITY_DISABLED, as Kafka without an authorizer.

Gap: there are no access rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kio.schema.describe_acls.v3.response import DescribeAclsResponse

from oncelog.broker.net.request import Request
from oncelog.core.errors import ErrorCode
from oncelog.protocol.messages import message

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["handle"]


def handle(context: Context, request: Request) -> Any:
    """Say that there is nothing to describe."""
    return message(
        DescribeAclsResponse,
        error_code=ErrorCode.security_disabled,
        error_message="No Authorizer is configured on the broker",
        resources=(),
    )
