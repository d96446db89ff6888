"""Sets, lists and deletes ACLs (KIP-11, KIP-290)."""

from collections.abc import Iterable
from typing import Any

from oncelog.client.admin_base import AdminBase
from oncelog.core.acl import (
    ANY_ACL,
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from oncelog.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
)
from oncelog.protocol.messages.describe_acls import DescribeAclsRequest

__all__ = ["AclAdmin", "creation_request", "deletion_request"]


class AclAdmin(AdminBase):
    """The calls of `Admin` that are about ACLs."""

    async def create_acls(self, acls: Iterable[Acl]) -> None:
        """Set ACLs; one that is there already stays.

        Raises `FatalError` for the first one that is refused, while the others are set:
        invalid_request, cluster_authorization_failed, security_disabled (no authorizer). With
        Oncelog they are in force on every broker when this returns, with Apache Kafka soon after.
        Source: KIP-140.
        """
        chosen = tuple(acls)
        request = creation_request(chosen)

        async def call() -> None:
            response = await self._ask_controller(ApiKey.CREATE_ACLS, request)
            for acl, result in zip(chosen, response.results, strict=True):
                self._check(result.error_code, f"{acl.sentence}: {result.error_message or ''}")

        await self._retrying(call)

    async def describe_acls(self, chosen: AclFilter = ANY_ACL) -> tuple[Acl, ...]:
        """Return the ACLs that a filter selects, in order.

        Raises `FatalError`: cluster_authorization_failed, security_disabled. Source: KIP-140.
        """
        request = DescribeAclsRequest(**_fields(chosen))

        async def call() -> tuple[Acl, ...]:
            response = await self._cluster.request_any(ApiKey.DESCRIBE_ACLS, request)
            self._check(response.error_code, response.error_message or "")
            found = (
                Acl(
                    ResourceType.of(resource.resource_type),
                    resource.resource_name,
                    PatternType.of(resource.pattern_type),
                    acl.principal,
                    acl.host,
                    AclOperation.of(acl.operation),
                    AclPermission.of(acl.permission_type),
                )
                for resource in response.resources
                for acl in resource.acls
            )
            return tuple(sorted(found))

        return await self._retrying(call)

    async def delete_acls(self, filters: Iterable[AclFilter]) -> tuple[tuple[Acl, ...], ...]:
        """Delete the ACLs that filters select; return those of each filter.

        ``AclFilter(*acl)`` selects one ACL. Raises `FatalError` as `create_acls` does, for the
        first filter that is refused, while the others delete. Source: KIP-140.
        """
        request = deletion_request(filters)

        async def call() -> tuple[tuple[Acl, ...], ...]:
            response = await self._ask_controller(ApiKey.DELETE_ACLS, request)
            for result in response.filter_results:
                self._check(result.error_code, result.error_message or "")
                for acl in result.matching_acls:
                    self._check(acl.error_code, acl.error_message or "")
            return tuple(
                tuple(sorted(map(_deleted, result.matching_acls)))
                for result in response.filter_results
            )

        return await self._retrying(call)


def creation_request(acls: Iterable[Acl]) -> CreateAclsRequest:
    """Return the request that sets ACLs."""
    return CreateAclsRequest(creations=tuple(map(_creation, acls)))


def deletion_request(filters: Iterable[AclFilter]) -> DeleteAclsRequest:
    """Return the request that deletes the ACLs that filters select."""
    asked = tuple(DeleteAclsFilter(**_fields(chosen)) for chosen in filters)
    return DeleteAclsRequest(filters=asked)


def _creation(acl: Acl) -> AclCreation:
    return AclCreation(
        resource_type=acl.resource_type,
        resource_name=acl.name,
        resource_pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def _fields(chosen: AclFilter) -> dict[str, Any]:
    """The fields of a filter, which the requests that describe and delete have alike."""
    return {
        "resource_type_filter": chosen.resource_type,
        "resource_name_filter": chosen.name,
        "pattern_type_filter": chosen.pattern_type,
        "principal_filter": chosen.principal,
        "host_filter": chosen.host,
        "operation": chosen.operation,
        "permission_type": chosen.permission,
    }


def _deleted(acl: DeleteAclsMatchingAcl) -> Acl:
    return Acl(
        ResourceType.of(acl.resource_type),
        acl.resource_name,
        PatternType.of(acl.pattern_type),
        acl.principal,
        acl.host,
        AclOperation.of(acl.operation),
        AclPermission.of(acl.permission_type),
    )
