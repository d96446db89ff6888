"""Handles DescribeAcls (29), versions 1-3: the ACLs that a filter selects, by resource.

Without an authorizer: SECURITY_DISABLED. A filter with the number 0 gets INVALID_REQUEST, where
Kafka closes the connection; one with another number that is none selects nothing. Gap: none known.
"""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from oncelog.broker.apis.acl_filter import filter_of
from oncelog.broker.net.request import Request
from oncelog.core.acl import (
    problem_of_filter,
)
from oncelog.core.errors import ErrorCode
from oncelog.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["handle"]


def handle(context: Context, request: Request[DescribeAclsRequest]) -> DescribeAclsResponse:
    """Return the ACLs that are in force."""
    if context.config.authorizer is None:
        text = "No Authorizer is configured on the broker"
        return DescribeAclsResponse(error_code=ErrorCode.security_disabled, error_message=text)
    body = request.body
    chosen = filter_of(body)
    numbers = (
        body.resource_type_filter,
        body.pattern_type_filter,
        body.operation,
        body.permission_type,
    )
    if 0 in numbers:
        problem = problem_of_filter(chosen)
        return DescribeAclsResponse(error_code=ErrorCode.invalid_request, error_message=problem)
    acls = sorted(filter(chosen.matches, context.image.acls.values()))
    return DescribeAclsResponse(
        error_message="",
        resources=tuple(
            DescribeAclsResource(
                resource_type=resource_type,
                resource_name=name,
                pattern_type=pattern_type,
                acls=tuple(
                    AclDescription(
                        principal=acl.principal,
                        host=acl.host,
                        operation=acl.operation,
                        permission_type=acl.permission,
                    )
                    for acl in found
                ),
            )
            for (resource_type, name, pattern_type), found in groupby(acls, itemgetter(0, 1, 2))
        ),
    )
