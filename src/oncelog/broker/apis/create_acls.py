"""Handles CreateAcls (30), versions 1-3: sets ACLs, each by itself.

One that is there already is no error. They are in force on every broker when this is answered, as
far as the brokers can be reached. Without an authorizer: SECURITY_DISABLED. An ACL with ANY, MATCH
or the number 0 gets INVALID_REQUEST, where Kafka answers UNKNOWN_SERVER_ERROR for the whole
request, or closes the connection. Gap: none known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.net.request import Request
from oncelog.controller.events import AclOutcome, CreateAcls
from oncelog.core.acl import (
    Acl,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
    problem_of_acl,
)
from oncelog.core.errors import ErrorCode
from oncelog.protocol.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["handle"]


async def handle(context: Context, request: Request[CreateAclsRequest]) -> CreateAclsResponse:
    """Have those set that can be; return what became of each."""
    acls = [_acl(creation) for creation in request.body.creations]
    if context.config.authorizer is None:
        refused = AclOutcome(ErrorCode.security_disabled, "No Authorizer is configured.")
        return _response([refused] * len(acls))
    problems = [problem_of_acl(acl) for acl in acls]
    # What is refused here is not sent to the controller, whose reply would repeat it.
    good = [acl for acl, problem in zip(acls, problems, strict=True) if problem is None]
    decided = await context.controller.submit(CreateAcls(tuple(good))) if good else ()
    outcomes = iter(decided)
    return _response(
        [
            next(outcomes) if problem is None else AclOutcome(ErrorCode.invalid_request, problem)
            for problem in problems
        ]
    )


def _acl(creation: AclCreation) -> Acl:
    return Acl(
        ResourceType.of(creation.resource_type),
        creation.resource_name,
        PatternType.of(creation.resource_pattern_type),
        creation.principal,
        creation.host,
        AclOperation.of(creation.operation),
        AclPermission.of(creation.permission_type),
    )


def _response(outcomes: list[AclOutcome]) -> CreateAclsResponse:
    return CreateAclsResponse(
        results=tuple(
            AclCreationResult(error_code=error, error_message=message or "")
            for error, message in outcomes
        )
    )
