"""Access control lists (ACLs): what one says, and which ones a filter selects.

Numbers, names and the texts of errors are Kafka's (`org.apache.kafka.common.acl`, `…resource`,
`AclApis`, `AclControlManager`). `oncelog.security.authorizer` decides by them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from functools import lru_cache
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Final, NamedTuple, Self

from oncelog.core.security_limits import ACL_CLIENTS_COUNT_MAX, ACL_TEXT_LENGTH_MAX

__all__ = [
    "ANY_ACL",
    "CLUSTER_NAME",
    "WILDCARD",
    "WILDCARD_PRINCIPAL",
    "Acl",
    "AclFilter",
    "AclOperation",
    "AclPermission",
    "AuthorizerConfig",
    "Host",
    "PatternType",
    "ResourceType",
    "all_operations",
    "parse_host",
    "parse_principal",
    "parse_super_users",
    "problem_of_acl",
    "problem_of_filter",
    "supported_operations",
]

WILDCARD: Final = "*"
"""The name of all resources of a type, and the host of all clients."""

WILDCARD_PRINCIPAL: Final = "User:*"
"""The principal of all clients."""

CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the one resource of type CLUSTER."""


class _WireName(IntEnum):
    """Names with their numbers on the wire, of which 0 is UNKNOWN."""

    @classmethod
    def of(cls, number: int) -> Self:
        """Return the member of a number; UNKNOWN where there is none."""
        try:
            return cls(number)
        except ValueError:
            return cls(0)

    @property
    def title(self) -> str:
        """The name in Kafka's messages: ``TransactionalId``."""
        return "".join(part.capitalize() for part in self.name.split("_"))


class AclOperation(_WireName):
    """What is done to a resource; ANY only selects, ALL covers each."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceType(_WireName):
    """What kind of thing is done something to; ANY only selects."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(_WireName):
    """How the name of an ACL stands for names of resources (KIP-290).

    ANY and MATCH only select: MATCH finds each ACL that applies to the resource of a name.
    """

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclPermission(_WireName):
    """Whether an ACL allows or denies; ANY only selects."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class Acl(NamedTuple):
    """One ACL: it allows or denies a principal on a host one operation on some resources."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType
    principal: str
    """Type and name, ``User:alice``."""
    host: str
    """An IP address, a network (``10.0.0.0/8``) or `WILDCARD`."""
    operation: AclOperation
    permission: AclPermission

    def __str__(self) -> str:
        """Return what Kafka's authorizer calls it in its log (`StandardAcl`)."""
        return (
            f"StandardAcl[resourceType={self.resource_type.name}, resourceName={self.name}, "
            f"patternType={self.pattern_type.name}, principal={self.principal}, host={self.host}, "
            f"operation={self.operation.name}, permissionType={self.permission.name}]"
        )

    @property
    def sentence(self) -> str:
        """What it says, for people: ``User:app may WRITE topic orders``."""
        verb = "may" if self.permission is AclPermission.ALLOW else "may not"
        where = "" if self.host == WILDCARD else f" at {self.host}"
        return f"{self.principal}{where} {verb} {self.operation.name} {self.resource}"

    @property
    def resource(self) -> str:
        """What it is about, for people: ``topics orders*``."""
        kind = self.resource_type.name.lower().replace("_", " ")
        if self.resource_type is ResourceType.CLUSTER:
            return "the cluster"
        if self.pattern_type is PatternType.PREFIXED:
            return f"{kind}s {self.name}*"
        return f"all {kind}s" if self.name == WILDCARD else f"{kind} {self.name}"


class AclFilter(NamedTuple):
    """Selects ACLs; None and ANY are of any value (`AclBindingFilter`)."""

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY

    def matches(self, acl: Acl) -> bool:
        """Whether it selects an ACL (`ResourcePatternFilter`, `AccessControlEntryFilter`)."""
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self._matches_name(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission in (AclPermission.ANY, acl.permission)
        )

    def _matches_name(self, acl: Acl) -> bool:
        if self.pattern_type is not PatternType.MATCH:
            is_of_type = self.pattern_type in (PatternType.ANY, acl.pattern_type)
            return is_of_type and self.name in (None, acl.name)
        if self.name is None:
            return True
        if acl.pattern_type is PatternType.PREFIXED:
            return self.name.startswith(acl.name)
        return acl.name in (self.name, WILDCARD)


class AuthorizerConfig(NamedTuple):
    """The settings of a broker's authorizer."""

    super_users: frozenset[str] = frozenset()
    """Principals who may do everything."""
    allow_everyone: bool = False
    """Whether everyone may do everything to a resource that no ACL is about."""


ANY_ACL: Final = AclFilter()
"""Selects all ACLs."""

_SUPPORTED: Final[Mapping[ResourceType, frozenset[AclOperation]]] = {
    ResourceType.TOPIC: frozenset(
        {
            AclOperation.READ,
            AclOperation.WRITE,
            AclOperation.CREATE,
            AclOperation.DESCRIBE,
            AclOperation.DELETE,
            AclOperation.ALTER,
            AclOperation.DESCRIBE_CONFIGS,
            AclOperation.ALTER_CONFIGS,
        }
    ),
    ResourceType.GROUP: frozenset(
        {
            AclOperation.READ,
            AclOperation.DESCRIBE,
            AclOperation.DELETE,
            AclOperation.DESCRIBE_CONFIGS,
            AclOperation.ALTER_CONFIGS,
        }
    ),
    ResourceType.CLUSTER: frozenset(
        {
            AclOperation.CREATE,
            AclOperation.CLUSTER_ACTION,
            AclOperation.DESCRIBE_CONFIGS,
            AclOperation.ALTER_CONFIGS,
            AclOperation.IDEMPOTENT_WRITE,
            AclOperation.ALTER,
            AclOperation.DESCRIBE,
        }
    ),
    ResourceType.TRANSACTIONAL_ID: frozenset(
        {AclOperation.DESCRIBE, AclOperation.WRITE, AclOperation.TWO_PHASE_COMMIT}
    ),
    ResourceType.DELEGATION_TOKEN: frozenset({AclOperation.DESCRIBE}),
    ResourceType.USER: frozenset({AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS}),
}


def supported_operations(resource_type: ResourceType) -> frozenset[AclOperation]:
    """Return the operations that exist on a type of resource (`AclEntry.supportedOperations`).

    An ACL may name others all the same: Kafka's controller takes each operation for each type.
    """
    return _SUPPORTED[resource_type]


def all_operations(resource_type: ResourceType) -> int:
    """Return the field *authorized operations* of someone who may do everything.

    A bit field: bit n is the operation of number n.
    """
    return sum(1 << operation for operation in supported_operations(resource_type))


def parse_principal(text: str) -> tuple[str, str]:
    """Return type and name of a principal. Raises `ValueError` (`SecurityUtils`)."""
    kind, colon, name = text.partition(":")
    if not colon or not kind:
        raise ValueError(
            f"expected a string in format principalType:principalName but got {text!r}"
        )
    return kind, name


Host = IPv4Address | IPv6Address | IPv4Network | IPv6Network | str


@lru_cache(ACL_CLIENTS_COUNT_MAX)
def parse_host(text: str) -> Host:
    """Return the address or network of a client or an ACL; the text where it is none.

    An IPv4 address in IPv6 is one of IPv4, as in Java. Raises `ValueError` for a slash without a
    network (`CidrUtils`; Kafka 4.4 has networks).
    """
    if "/" in text:
        if not text.rpartition("/")[2].isdecimal():
            raise ValueError(f"{text!r} does not end in the length of a prefix")
        network = ip_network(text, strict=False)
        first = ip_address(text.partition("/")[0])
        if isinstance(first, IPv6Address) and first.ipv4_mapped:
            raise ValueError(f"{text!r} is a network of IPv4 in IPv6")
        return network
    try:
        address = ip_address(text)
    except ValueError:
        return text
    return (isinstance(address, IPv6Address) and address.ipv4_mapped) or address


def parse_super_users(text: str) -> frozenset[str]:
    """Return the principals of `super.users`. Raises `ValueError` for what is none."""
    found = frozenset(filter(None, (part.strip() for part in text.split(";"))))
    for principal in found:
        parse_principal(principal)
    return found


def problem_of_acl(acl: Acl) -> str | None:
    """Return why an ACL cannot be set (INVALID_REQUEST); None: it can.

    Source: `AclApis.handleCreateAcls`, then `AclControlManager.validateNewAcl`; that a text is too
    long is ours.
    """
    if acl.resource_type is ResourceType.CLUSTER and acl.name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not acl.name:
        return "Invalid empty resource name"
    if acl.resource_type <= ResourceType.ANY:
        return f"Invalid resourceType {acl.resource_type.name}"
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"Invalid patternType {acl.pattern_type.name}"
    if acl.operation <= AclOperation.ANY:
        return f"Invalid operation {acl.operation.name}"
    if acl.permission <= AclPermission.ANY:
        return f"Invalid permissionType {acl.permission.name}"
    if max(map(len, (acl.name, acl.principal, acl.host))) > ACL_TEXT_LENGTH_MAX:
        return f"Names, principals and hosts have at most {ACL_TEXT_LENGTH_MAX} characters"
    if ":" not in acl.principal:
        return (
            f"Could not parse principal from `{acl.principal}` (no colon is present separating "
            "the principal type from the principal name)"
        )
    if not acl.host:
        return "Host pattern cannot be null or empty"
    try:
        parse_host(acl.host)
    except ValueError as error:
        return f"Invalid CIDR notation '{acl.host}': {error}"
    return None


def problem_of_filter(chosen: AclFilter) -> str | None:
    """Return why a filter cannot delete (INVALID_REQUEST); None: it can.

    Source: `AclControlManager.validateFilter`.
    """
    if not (chosen.resource_type and chosen.pattern_type):
        return "Unknown patternFilter."
    if not (chosen.operation and chosen.permission):
        return "Unknown entryFilter."
    return None
