"""Asks for the APIs by which clients find brokers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from oncelog.broker.access.asked import Asked, AskedParts
from oncelog.broker.apis.metadata import OPERATIONS_NOT_ASKED
from oncelog.broker.apis.needs import (
    CLUSTER_ACTION,
    DESCRIBE_CLUSTER,
    DESCRIBE_GROUP,
    DESCRIBE_TRANSACTIONAL_ID,
    Need,
)
from oncelog.core.acl import ResourceType
from oncelog.core.pending import unchanged
from oncelog.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from oncelog.protocol.messages.find_coordinator import FindCoordinatorRequest

_BY_TYPE: Final[Mapping[int, Need]] = {0: DESCRIBE_GROUP, 1: DESCRIBE_TRANSACTIONAL_ID}
_SHARE: Final = 2
_SHARE_SINCE: Final = 6


def find_coordinator(asked: Asked[FindCoordinatorRequest]) -> object:
    """The one of the id's type for each id; brokers that ask for share groups, the last."""
    body = asked.body
    need = _BY_TYPE.get(body.key_type)
    if need is not None:
        denied = asked.denied(need, body.coordinator_keys)
        parts = AskedParts("coordinator_keys", "coordinators", unchanged, lambda found: found.key)
        return asked.serve_but(parts, dict.fromkeys(denied, need.error))
    is_share = body.key_type == _SHARE and asked.request.version >= _SHARE_SINCE
    if is_share and not asked.may(CLUSTER_ACTION):
        return asked.refuse(CLUSTER_ACTION)
    return asked.serve()


def describe_cluster(asked: Asked[DescribeClusterRequest]) -> object:
    """Only the list of authorized operations needs it; it is empty without."""

    def shown(response: DescribeClusterResponse) -> DescribeClusterResponse:
        if response.cluster_authorized_operations == OPERATIONS_NOT_ASKED:
            return response
        operations = 0
        if asked.may(DESCRIBE_CLUSTER):
            operations = asked.operations_on(ResourceType.CLUSTER)
        return replace(response, cluster_authorized_operations=operations)

    return asked.serve(shown)
