"""Has requests refused as an ACL would have them refused, a number of times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from oncelog.broker import apis
from oncelog.broker.access import Guard
from oncelog.broker.access.audit import AuditLog, Subject
from oncelog.broker.apis.needs import Need
from oncelog.broker.net.request import Api
from oncelog.core.acl import (
    WILDCARD,
    WILDCARD_PRINCIPAL,
    Acl,
    AclOperation,
    AclPermission,
    AuthorizerConfig,
    PatternType,
)
from oncelog.protocol.api import ApiKey
from oncelog.runtime.clock import Clock
from oncelog.security.authorizer import AclRules
from oncelog.testing.fault import ArmedFault

if TYPE_CHECKING:
    from oncelog.broker.broker import Broker

__all__ = ["Denial", "denying"]

_OPEN: Final = AuthorizerConfig(allow_everyone=True)


@dataclass(frozen=True, slots=True)
class Denial:
    """Refuses what these ACLs deny, and nothing else."""

    acls: tuple[Acl, ...]
    fault: ArmedFault

    def is_about(self, need: Need, name: str) -> bool:
        """Whether it may be why this is refused."""
        return any(
            acl.operation in (AclOperation.ALL, need.operation)
            and acl.resource_type is need.resource_type
            and _has_name(acl, name)
            for acl in self.acls
        )

    def with_all_else_allowed(self) -> tuple[Acl, ...]:
        """Return its ACLs and, as a resource with an ACL is closed to others, what opens it."""
        allowed = (
            acl._replace(
                principal=WILDCARD_PRINCIPAL,
                operation=AclOperation.ALL,
                permission=AclPermission.ALLOW,
            )
            for acl in self.acls
        )
        return (*self.acls, *allowed)


def _has_name(acl: Acl, name: str) -> bool:
    if acl.pattern_type is PatternType.PREFIXED:
        return name.startswith(acl.name)
    return acl.name in (WILDCARD, name)


def denying(
    key: ApiKey, broker: Broker, denials: Sequence[Denial], on_denied: Callable[[Denial], None]
) -> Api:
    """Return an API whose next request is asked for these denials, and for the broker's ACLs.

    It stands in the place of the broker's own question.
    """
    settings, acls = broker.config.authorizer or _OPEN, list(broker.image.acls.values())
    known = {acl.resource_type for acl in acls}
    for denial in denials:
        is_open = settings.allow_everyone and not known & {acl.resource_type for acl in denial.acls}
        acls += denial.with_all_else_allowed() if is_open else denial.acls
    guard = _DenyingGuard(broker.clock, acls, settings, _Note(denials, on_denied))
    api = guard.asking(apis.find)(key)
    assert api is not None
    return api


class _Note:
    """Tells once of each denial that a request has met."""

    def __init__(self, denials: Sequence[Denial], on_denied: Callable[[Denial], None]) -> None:
        self._left = list(denials)
        self._on_denied = on_denied

    def refused(self, need: Need, name: str) -> None:
        for denial in [each for each in self._left if each.is_about(need, name)]:
            self._left.remove(denial)
            self._on_denied(denial)


class _DenyingGuard(Guard):
    def __init__(
        self, clock: Clock, acls: Sequence[Acl], settings: AuthorizerConfig, note: _Note
    ) -> None:
        by_id = {str(number): acl for number, acl in enumerate(acls)}
        super().__init__(clock, lambda: by_id, settings)
        self._audit = _NotingLog(clock, note)


class _NotingLog(AuditLog):
    def __init__(self, clock: Clock, note: _Note) -> None:
        super().__init__(clock)
        self._note = note

    def tell(
        self, rules: AclRules, subject: Subject, need: Need, name: str, count: int, *, allowed: bool
    ) -> None:
        super().tell(rules, subject, need, name, count, allowed=allowed)
        if not allowed:
            self._note.refused(need, name)
