"""Apache Kafka's rules of ACLs, worked out from the list of all ACLs for each question: `rights`.

Names of operations, resources and hosts stand in tables here, so that an error in those of the
broker is seen. Sources: `StandardAuthorizerData`, `Authorizer.authorizeByResourceType`, `AclEntry`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from oncelog.core.acl import (
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)

__all__ = [
    "ADDRESSES",
    "EXISTING",
    "IMPLIED_BY",
    "ExpectedRuling",
    "PlainAcl",
    "Question",
    "StatedRights",
    "selected",
]

_OF_10_0_0_7 = ("*", "10.0.0.7", "::ffff:10.0.0.7", "10.0.0.0/8", "10.0.0.6/31", "0.0.0.0/0")

ADDRESSES = {
    "10.0.0.7": _OF_10_0_0_7,
    "10.0.1.7": ("*", "10.0.1.7", "10.0.0.0/8", "0.0.0.0/0"),
    "::ffff:10.0.0.7": _OF_10_0_0_7,
    "::1": ("*", "::1", "0:0:0:0:0:0:0:1", "::/64"),
    "fd00::2": ("*", "fd00::2", "fd00:0::2"),
    "unknown": ("*", "unknown"),
}
"""Address of a client -> the hosts of ACLs that stand for it."""

IMPLIED_BY = {
    "DESCRIBE": ("READ", "WRITE", "DELETE", "ALTER"),
    "DESCRIBE_CONFIGS": ("ALTER_CONFIGS",),
}
"""Operation -> those that may not be carried out without it: who may do these may do it."""

EXISTING = {
    "TOPIC": "READ WRITE CREATE DESCRIBE DELETE ALTER DESCRIBE_CONFIGS ALTER_CONFIGS",
    "GROUP": "READ DESCRIBE DELETE DESCRIBE_CONFIGS ALTER_CONFIGS",
    "CLUSTER": (
        "CREATE CLUSTER_ACTION DESCRIBE_CONFIGS ALTER_CONFIGS IDEMPOTENT_WRITE ALTER DESCRIBE"
    ),
    "TRANSACTIONAL_ID": "DESCRIBE WRITE TWO_PHASE_COMMIT",
    "DELEGATION_TOKEN": "DESCRIBE",
    "USER": "CREATE_TOKENS DESCRIBE_TOKENS",
}
"""Type of a resource -> the operations that a description of it lists."""


class PlainAcl(NamedTuple):
    """An ACL in words."""

    resource_type: str
    name: str
    pattern_type: str
    principal: str
    host: str
    operation: str
    permission: str

    @property
    def real(self) -> Acl:
        """The same as the broker has it."""
        return Acl(
            ResourceType[self.resource_type],
            self.name,
            PatternType[self.pattern_type],
            self.principal,
            self.host,
            AclOperation[self.operation],
            AclPermission[self.permission],
        )


@dataclass(frozen=True, slots=True)
class ExpectedRuling:
    """Whether something is allowed, and what may be said to be the reason."""

    is_allowed: bool
    word: str
    """`SuperUser`, `DefaultAllow`, `DefaultDeny`; empty if an ACL decides."""
    deciding: tuple[PlainAcl, ...] = ()
    """The ACLs that may be named: those of the most exact pattern that decide."""


@dataclass(frozen=True, slots=True)
class Question:
    """Who asks, from where, for which operation on what; without a name on any of the type."""

    principal: str
    address: str
    operation: str
    resource_type: str
    name: str = ""

    def is_by(self, acl: PlainAcl) -> bool:
        """Whether an ACL is about the client that asks."""
        is_named = acl.principal == "User:*" or acl.principal == self.principal
        return is_named and acl.host in ADDRESSES[self.address]

    def is_on(self, acl: PlainAcl, name: str) -> bool:
        """Whether an ACL is about the resource of a name."""
        if acl.resource_type != self.resource_type:
            return False
        if acl.pattern_type == "PREFIXED":
            return name.startswith(acl.name)
        return acl.name == name or acl.name == "*"


@dataclass(frozen=True, slots=True)
class StatedRights:
    """All ACLs, and the settings of the authorizer."""

    acls: tuple[PlainAcl, ...]
    super_users: frozenset[str]
    allow_everyone: bool

    def verdict(self, asked: Question, name: str) -> ExpectedRuling:
        """Decide on one resource: one ACL that denies is enough, else one that allows."""
        if asked.principal in self.super_users:
            return ExpectedRuling(True, "SuperUser")
        on_it = [acl for acl in self.acls if asked.is_on(acl, name)]
        by_it = [acl for acl in on_it if asked.is_by(acl)]
        just = ("ALL", asked.operation)
        for permission, covered in (
            ("DENY", just),
            ("ALLOW", (*just, *IMPLIED_BY.get(asked.operation, ()))),
        ):
            deciding = [
                acl for acl in by_it if acl.permission == permission and acl.operation in covered
            ]
            if deciding:
                best = max(_exactness(acl, name) for acl in deciding)
                most = tuple(acl for acl in deciding if _exactness(acl, name) == best)
                return ExpectedRuling(permission == "ALLOW", "", most)
        if not on_it and self.allow_everyone:
            return ExpectedRuling(True, "DefaultAllow")
        return ExpectedRuling(False, "DefaultDeny")

    def is_any_allowed(self, asked: Question) -> bool:
        """Decide on any resource of a type, which Kafka does without implied operations."""
        if self.verdict(asked, "hardcode").is_allowed:
            return True
        about = [
            acl
            for acl in self.acls
            if acl.resource_type == asked.resource_type
            and asked.is_by(acl)
            and acl.operation in (asked.operation, "ALL")
        ]
        denying = [acl for acl in about if acl.permission == "DENY"]
        return any(
            acl.permission == "ALLOW" and not any(_covers(wide, acl) for wide in denying)
            for acl in about
        )

    def authorized_operations(self, asked: Question) -> int:
        """Bit n is the operation of number n."""
        bits = 0
        for operation in EXISTING[asked.resource_type].split():
            one = Question(asked.principal, asked.address, operation, asked.resource_type)
            if self.verdict(one, asked.name).is_allowed:
                bits |= 1 << AclOperation[operation].value
        return bits


def _exactness(acl: PlainAcl, name: str) -> tuple[bool, bool, int]:
    """The very name comes first, then the longest prefix, then all names."""
    is_prefix = acl.pattern_type == "PREFIXED"
    return not is_prefix and acl.name == name, is_prefix, len(acl.name)


def _covers(wide: PlainAcl, narrow: PlainAcl) -> bool:
    """Whether what denies leaves nothing of what allows.

    All names are more than any others; that all names are allowed is not taken back by a prefix.
    """
    if wide.pattern_type == "LITERAL":
        same = wide.pattern_type is narrow.pattern_type and wide.name == narrow.name
        return same or wide.name == "*"
    is_all = narrow.pattern_type == "LITERAL" and narrow.name == "*"
    return narrow.name.startswith(wide.name) and not is_all


def selected(acls: Sequence[PlainAcl], chosen: AclFilter) -> Iterator[PlainAcl]:
    """Yield the ACLs that a filter selects (`AclBindingFilter`)."""
    for acl in acls:
        pairs = [
            (chosen.resource_type.name, acl.resource_type),
            (chosen.operation.name, acl.operation),
            (chosen.permission.name, acl.permission),
            (chosen.principal or "ANY", acl.principal),
            (chosen.host or "ANY", acl.host),
        ]
        if chosen.pattern_type.name != "MATCH":
            pairs += [(chosen.pattern_type.name, acl.pattern_type)]
            pairs += [(chosen.name or "ANY", acl.name)]
        elif chosen.name is not None:
            is_prefix = acl.pattern_type == "PREFIXED"
            is_it = chosen.name.startswith(acl.name) if is_prefix else acl.name == chosen.name
            pairs += [("same", "same" if is_it or (not is_prefix and acl.name == "*") else "other")]
        if all(wanted in ("ANY", found) for wanted, found in pairs):
            yield acl
