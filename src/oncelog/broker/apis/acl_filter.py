"""Reads the filter of ACLs in a request that describes or deletes them."""

from __future__ import annotations

from oncelog.core.acl import AclFilter, AclOperation, AclPermission, PatternType, ResourceType
from oncelog.protocol.messages.delete_acls import DeleteAclsFilter
from oncelog.protocol.messages.describe_acls import DescribeAclsRequest

__all__ = ["filter_of"]


def filter_of(asked: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    """Return the filter; a number that Kafka does not know is UNKNOWN."""
    return AclFilter(
        ResourceType.of(asked.resource_type_filter),
        asked.resource_name_filter,
        PatternType.of(asked.pattern_type_filter),
        asked.principal_filter,
        asked.host_filter,
        AclOperation.of(asked.operation),
        AclPermission.of(asked.permission_type),
    )
