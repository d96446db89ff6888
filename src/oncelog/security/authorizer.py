"""Decides who may do what, by ACLs: the rules of Kafka's `StandardAuthorizer`.

A super user may do everything. Else any ACL that denies wins, whether it names the resource, a
prefix of it or all. Else one that allows is needed; where no ACL is about the resource at all,
`allow.everyone.if.no.acl.found` says. An ACL that allows READ, WRITE, DELETE or ALTER allows
DESCRIBE, and ALTER_CONFIGS allows DESCRIBE_CONFIGS; one that denies implies nothing.

An `AclRules` is made of all ACLs and never changed: what it remembers goes with it. Addresses
are compared as such, not as texts: ``::1`` is Java's ``0:0:0:0:0:0:0:1``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from ipaddress import IPv4Network, IPv6Network
from typing import Final, NamedTuple

from oncelog.core.acl import (
    WILDCARD,
    WILDCARD_PRINCIPAL,
    Acl,
    AclOperation,
    AclPermission,
    Host,
    PatternType,
    ResourceType,
    parse_host,
    supported_operations,
)
from oncelog.core.security_limits import (
    ACL_CLIENTS_COUNT_MAX,
    ACL_DECISION_NAME_LENGTH_MAX,
    ACL_DECISIONS_COUNT_MAX,
)

__all__ = ["AclRules", "Decisions", "Ruling"]

_Asked = tuple[AclOperation, ResourceType, str | None]
"""An operation on the resource of a type and a name; None: on any resource of the type."""

_SOME_NAME: Final = "hardcode"
"""Kafka asks for this name first where an operation may be on any resource."""


def _granting() -> dict[AclOperation, frozenset[AclOperation]]:
    """Return by operation those of which an ACL allows it."""
    found = {one: {one, AclOperation.ALL} for one in AclOperation}
    found[AclOperation.DESCRIBE] |= {
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.DELETE,
        AclOperation.ALTER,
    }
    found[AclOperation.DESCRIBE_CONFIGS].add(AclOperation.ALTER_CONFIGS)
    return {one: frozenset(granting) for one, granting in found.items()}


_GRANTING: Final[Mapping[AclOperation, frozenset[AclOperation]]] = _granting()


class Ruling(NamedTuple):
    """A decision, and what it follows from: an ACL, or `reason` where there is none."""

    is_allowed: bool
    reason: str
    """Kafka's words: SuperUser, DefaultAllow, DefaultDeny, or the ACL that decides."""
    acl: Acl | None = None


_SUPER_USER: Final = Ruling(True, "SuperUser")
_DEFAULT_ALLOW: Final = Ruling(True, "DefaultAllow")
_DEFAULT_DENY: Final = Ruling(False, "DefaultDeny")


class Decisions(dict[_Asked, bool]):
    """What one principal at one address may do; a key that is missing is decided on.

    For a hot path: ``decisions[operation, resource_type, name]`` is one look-up in a dictionary.
    """

    __slots__ = ("_host", "_principal", "_rules")

    def __init__(self, rules: AclRules, principal: str, host: str) -> None:
        self._rules = rules
        self._principal = principal
        self._host = host

    def __missing__(self, asked: _Asked) -> bool:
        """Decide, and remember it."""
        operation, resource_type, name = asked
        if name is None:
            found = self._rules.decide_any(self._principal, self._host, operation, resource_type)
        else:
            ruling = self._rules.ruling(self._principal, self._host, operation, resource_type, name)
            found = ruling.is_allowed
        if name is None or len(name) <= ACL_DECISION_NAME_LENGTH_MAX:
            if len(self) >= ACL_DECISIONS_COUNT_MAX:
                self.clear()
            self[asked] = found
        return found


class _Client(NamedTuple):
    """Who asks: the principals of the ACLs that may be about it, and where it is."""

    principals: tuple[str, ...]
    address: Host

    @classmethod
    def of(cls, principal: str, host: str) -> _Client:
        return cls((principal, WILDCARD_PRINCIPAL), parse_host(host))


class _NamedAcls:
    """The ACLs of the resources that one name stands for, by principal, with their hosts."""

    __slots__ = ("_acls", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._acls: dict[str, list[tuple[Host, Acl]]] = {}

    def add(self, acl: Acl) -> None:
        self._acls.setdefault(acl.principal, []).append((parse_host(acl.host), acl))

    def about(self, client: _Client) -> Iterator[Acl]:
        """Yield the ACLs that are about a client."""
        for principal in client.principals:
            for host, acl in self._acls.get(principal, ()):
                if acl.host == WILDCARD or _is_in(client.address, host):
                    yield acl

    def has(self, client: _Client, operation: AclOperation, permission: AclPermission) -> bool:
        """Whether one says so of just this operation, or of all."""
        return any(
            acl.permission is permission and acl.operation in (operation, AclOperation.ALL)
            for acl in self.about(client)
        )


class _TypeAcls:
    """The ACLs of one type of resource."""

    __slots__ = ("lengths", "literals", "prefixes")

    def __init__(self, acls: Iterable[Acl]) -> None:
        self.literals: dict[str, _NamedAcls] = {}
        self.prefixes: dict[str, _NamedAcls] = {}
        for acl in acls:
            is_prefix = acl.pattern_type is PatternType.PREFIXED
            patterns = self.prefixes if is_prefix else self.literals
            if acl.name not in patterns:
                patterns[acl.name] = _NamedAcls(acl.name)
            patterns[acl.name].add(acl)
        self.lengths = sorted({len(name) for name in self.prefixes}, reverse=True)

    def about(self, name: str) -> Iterator[_NamedAcls]:
        """Yield the patterns that stand for the resource of a name, the most exact one first."""
        if (literal := self.literals.get(name)) is not None:
            yield literal
        yield from self.prefixes_of(name)
        if name != WILDCARD and (every := self.literals.get(WILDCARD)) is not None:
            yield every

    def prefixes_of(self, name: str) -> Iterator[_NamedAcls]:
        """Yield the prefixes of a name, the longest one first."""
        for length in self.lengths:
            if length <= len(name) and (found := self.prefixes.get(name[:length])) is not None:
                yield found


class AclRules:
    """All ACLs of a cluster, and whom a broker's settings trust."""

    def __init__(
        self,
        acls: Iterable[Acl] = (),
        super_users: Iterable[str] = (),
        *,
        allow_everyone: bool = False,
    ) -> None:
        by_type: dict[ResourceType, list[Acl]] = defaultdict(list)
        for acl in sorted(acls):
            by_type[acl.resource_type].append(acl)
        self._patterns = {one: _TypeAcls(found) for one, found in by_type.items()}
        self._super_users = frozenset(super_users)
        self._default = _DEFAULT_ALLOW if allow_everyone else _DEFAULT_DENY
        self._decisions: dict[tuple[str, str], Decisions] = {}

    def decisions_of(self, principal: str, host: str) -> Decisions:
        """Return what a principal (``User:alice``) at an IP address may do."""
        key = principal, host
        found = self._decisions.get(key)
        if found is None:
            if len(self._decisions) >= ACL_CLIENTS_COUNT_MAX:
                self._decisions.clear()
            found = self._decisions[key] = Decisions(self, principal, host)
        return found

    def allows(
        self,
        principal: str,
        host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
    ) -> bool:
        """Whether an operation is allowed; see `ruling`. The answer is remembered."""
        return self.decisions_of(principal, host)[operation, resource_type, name]

    def allows_any(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Whether an operation is allowed on at least one resource of a type, there or to come.

        The answer is remembered. Source: `Authorizer.authorizeByResourceType`.
        """
        return self.decisions_of(principal, host)[operation, resource_type, None]

    def authorized_operations(
        self, principal: str, host: str, resource_type: ResourceType, name: str
    ) -> int:
        """Return the field *authorized operations*: bit n is the operation of number n."""
        decisions = self.decisions_of(principal, host)
        return sum(
            1 << operation
            for operation in supported_operations(resource_type)
            if decisions[operation, resource_type, name]
        )

    def ruling(
        self,
        principal: str,
        host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
    ) -> Ruling:
        """Decide whether a principal at an IP address may do something to a resource, and why."""
        if principal in self._super_users:
            return _SUPER_USER
        patterns = self._patterns.get(resource_type)
        if patterns is None:
            return self._default
        client = _Client.of(principal, host)
        allowing: Acl | None = None
        has_acls = False
        for pattern in patterns.about(name):
            has_acls = True
            for acl in pattern.about(client):
                if acl.permission is AclPermission.DENY:
                    if acl.operation in (operation, AclOperation.ALL):
                        return _by(acl)
                elif allowing is None and acl.operation in _GRANTING[operation]:
                    allowing = acl
        if allowing is not None:
            return _by(allowing)
        return _DEFAULT_DENY if has_acls else self._default

    def decide_any(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Decide what `allows_any` answers.

        An ACL that allows counts unless one that denies covers all that it stands for. Operations
        imply no others here but where the name that Kafka tries first is allowed.
        """
        if self.ruling(principal, host, operation, resource_type, _SOME_NAME).is_allowed:
            return True
        patterns = self._patterns.get(resource_type)
        if patterns is None:
            return False
        client = _Client.of(principal, host)
        if (every := patterns.literals.get(WILDCARD)) is not None:
            if every.has(client, operation, AclPermission.DENY):
                return False
            if every.has(client, operation, AclPermission.ALLOW):
                return True
        literals = (
            one
            for one in patterns.literals.values()
            if not one.has(client, operation, AclPermission.DENY)
        )
        return any(
            one.has(client, operation, AclPermission.ALLOW)
            and not any(
                prefix.has(client, operation, AclPermission.DENY)
                for prefix in patterns.prefixes_of(one.name)
            )
            for one in (*literals, *patterns.prefixes.values())
        )


def _by(acl: Acl) -> Ruling:
    return Ruling(acl.permission is AclPermission.ALLOW, f"MatchingAcl(acl={acl})", acl)


def _is_in(address: Host, host: Host) -> bool:
    if isinstance(host, IPv4Network | IPv6Network):
        return not isinstance(address, str) and address in host
    return address == host
