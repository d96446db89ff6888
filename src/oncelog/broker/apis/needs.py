"""Says what a client needs in order to use an API: an operation on a resource (KIP-11).

A row of `oncelog.broker.apis.HANDLERS` has one of three kinds of needs. They are data: only a
broker with an authorizer asks for them (`oncelog.broker.access`).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from oncelog.core.acl import AclOperation, ResourceType
from oncelog.core.errors import ErrorCode

__all__ = ["ERROR_OF", "InParts", "Need", "Nothing", "Whole"]

ERROR_OF: Final = {
    ResourceType.TOPIC: ErrorCode.topic_authorization_failed,
    ResourceType.GROUP: ErrorCode.group_authorization_failed,
    ResourceType.CLUSTER: ErrorCode.cluster_authorization_failed,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.transactional_id_authorization_failed,
}
"""What a client is told that may not do something to a resource of a type."""


class Need(NamedTuple):
    """An operation on a resource. The cluster is one resource, others have names."""

    operation: AclOperation
    resource_type: ResourceType

    @property
    def error(self) -> ErrorCode:
        """What a client is told that may not."""
        return ERROR_OF[self.resource_type]

    def __str__(self) -> str:
        """Return it as documents name it: ``READ GROUP``."""
        return f"{self.operation.name} {self.resource_type.name}"


class Nothing(NamedTuple):
    """Who reaches the broker may use the API; `because` says why."""

    because: str


class Whole(NamedTuple):
    """One need for the request as a whole, with the field that names the resource."""

    need: Need
    field: str = ""
    """Empty for the cluster."""


class InParts:
    """Needs that depend on what the request names: parts of it may be refused.

    A function with the API's name in `oncelog.broker.access.<module>` asks for them.
    """

    __slots__ = ("module", "needs")

    def __init__(self, module: str, *needs: Need) -> None:
        self.module = module
        self.needs = needs


_Operation = AclOperation

READ_TOPIC: Final = Need(_Operation.READ, ResourceType.TOPIC)
WRITE_TOPIC: Final = Need(_Operation.WRITE, ResourceType.TOPIC)
CREATE_TOPIC: Final = Need(_Operation.CREATE, ResourceType.TOPIC)
DELETE_TOPIC: Final = Need(_Operation.DELETE, ResourceType.TOPIC)
ALTER_TOPIC: Final = Need(_Operation.ALTER, ResourceType.TOPIC)
DESCRIBE_TOPIC: Final = Need(_Operation.DESCRIBE, ResourceType.TOPIC)
DESCRIBE_TOPIC_CONFIGS: Final = Need(_Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC)
ALTER_TOPIC_CONFIGS: Final = Need(_Operation.ALTER_CONFIGS, ResourceType.TOPIC)
READ_GROUP: Final = Need(_Operation.READ, ResourceType.GROUP)
DELETE_GROUP: Final = Need(_Operation.DELETE, ResourceType.GROUP)
DESCRIBE_GROUP: Final = Need(_Operation.DESCRIBE, ResourceType.GROUP)
DESCRIBE_GROUP_CONFIGS: Final = Need(_Operation.DESCRIBE_CONFIGS, ResourceType.GROUP)
ALTER_GROUP_CONFIGS: Final = Need(_Operation.ALTER_CONFIGS, ResourceType.GROUP)
WRITE_TRANSACTIONAL_ID: Final = Need(_Operation.WRITE, ResourceType.TRANSACTIONAL_ID)
DESCRIBE_TRANSACTIONAL_ID: Final = Need(_Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)
CREATE_CLUSTER: Final = Need(_Operation.CREATE, ResourceType.CLUSTER)
DELETE_CLUSTER: Final = Need(_Operation.DELETE, ResourceType.CLUSTER)
ALTER_CLUSTER: Final = Need(_Operation.ALTER, ResourceType.CLUSTER)
DESCRIBE_CLUSTER: Final = Need(_Operation.DESCRIBE, ResourceType.CLUSTER)
CLUSTER_ACTION: Final = Need(_Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
IDEMPOTENT_WRITE: Final = Need(_Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)
DESCRIBE_CLUSTER_CONFIGS: Final = Need(_Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
ALTER_CLUSTER_CONFIGS: Final = Need(_Operation.ALTER_CONFIGS, ResourceType.CLUSTER)
