"""Handles DeleteAcls (31), versions 1-3: deletes what filters select, and names it.

The ACLs are out of force on every broker when this is answered, as far as the brokers can be
reached. One that several filters select is named by each. Without an authorizer: SECURITY_DISABLED.
Gap: none known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.apis.acl_filter import filter_of
from oncelog.broker.net.request import Request
from oncelog.controller.events import AclDeletion, DeleteAcls
from oncelog.core.acl import Acl
from oncelog.core.errors import ErrorCode
from oncelog.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["handle"]


async def handle(context: Context, request: Request[DeleteAclsRequest]) -> DeleteAclsResponse:
    """Have the ACLs deleted; return those of each filter."""
    filters = tuple(map(filter_of, request.body.filters))
    if context.config.authorizer is None:
        refused = AclDeletion(ErrorCode.security_disabled, "No Authorizer is configured.")
        deletions = (refused,) * len(filters)
    else:
        deletions = await context.controller.submit(DeleteAcls(filters)) if filters else ()
    return DeleteAclsResponse(
        filter_results=tuple(
            DeleteAclsFilterResult(
                error_code=error, error_message=message, matching_acls=tuple(map(_deleted, acls))
            )
            for error, message, acls in deletions
        )
    )


def _deleted(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        resource_type=acl.resource_type,
        resource_name=acl.name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
