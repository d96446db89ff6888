"""What is known of ACLs and passwords, by the answers to the warden, who alone changes them.

A change may be in force as soon as it is asked for, and is on every broker once it is answered, but
for the brokers that were not registered then or that the answering one has named in its log. What
had no answer may take effect for a while, at any time. Pure: nothing here is the product's, so that
both can be compared; times are virtual, in seconds.

Source: StandardAuthorizerData.java for what ACLs mean.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from oncelog.core.acl import (
    WILDCARD,
    WILDCARD_PRINCIPAL,
    Acl,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)

__all__ = ["DOUBT_S", "AccessLedger", "Asking", "BrokerLife", "Password", "Rights"]

DOUBT_S: Final = 30.0
"""Longer than a request without an answer may wait for a controller, and then take effect."""

BrokerLife = tuple[int, int]
"""A broker's index, and which of its processes."""
Password = str
"""The user whose password it is: it is there while the user's client knows it."""
_Item = Acl | Password

_DESCRIBING: Final = frozenset(
    {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER}
)
"""What allows DESCRIBE as well; it denies nothing else."""


@dataclass(frozen=True, slots=True)
class Asking:
    """Who asks at which broker."""

    user: str
    host: str
    broker: BrokerLife


@dataclass(slots=True)
class _Certainty:
    """One ACL or password. `is_there` None: it may be or not."""

    is_there: bool | None = None
    since_s: float = 0.0
    doubtful_until_s: float = 0.0
    late: set[BrokerLife] = field(default_factory=set)
    """Brokers that may not go by it yet."""

    def at(self, broker: BrokerLife) -> bool | None:
        return None if broker in self.late else self.is_there


class AccessLedger:
    """One run's."""

    def __init__(self) -> None:
        self._known: dict[_Item, _Certainty] = {}

    # --- changes ----------------------------------------------------------------------

    def asked(self, items: Iterable[_Item]) -> None:
        """A change of these is sent: from now on it may be in force."""
        for item in items:
            self._known.setdefault(item, _Certainty()).is_there = None

    def lost(self, items: Iterable[_Item], now_s: float) -> None:
        """A change has no answer, or none that says what became of it."""
        for item in items:
            self._known[item].doubtful_until_s = now_s + DOUBT_S

    def answered(
        self, items: Iterable[_Item], now_s: float, *, is_there: bool, late: Collection[BrokerLife]
    ) -> None:
        """A change is answered: these are there, or are not, on all brokers but the late ones."""
        for item in items:
            known = self._known[item]
            known.late = set(late)
            known.since_s = now_s
            known.is_there = is_there if now_s >= known.doubtful_until_s else None

    def caught_up(self, broker: BrokerLife, has: Callable[[_Item], bool]) -> None:
        """Note of a broker that may have been late what it goes by now."""
        for item, known in self._known.items():
            if broker in known.late and has(item) is known.is_there:
                known.late.discard(broker)

    def is_late(self, broker: BrokerLife) -> bool:
        """Whether a broker may not go by all that is answered."""
        return any(broker in known.late for known in self._known.values())

    # --- what follows -----------------------------------------------------------------

    def rights(self, asking: Asking) -> Rights:
        """Return what a user may now, at one broker."""
        return Rights(
            [
                (acl, known.at(asking.broker))
                for acl, known in self._acls()
                if acl.principal in (f"User:{asking.user}", WILDCARD_PRINCIPAL)
                and acl.host in (WILDCARD, asking.host)
            ]
        )

    def wrong_since(self, user: Password, broker: BrokerLife) -> float | None:
        """Since when a client's password is surely not the user's; None: it may be."""
        known = self._known.get(user)
        return None if known is None or known.at(broker) is not False else known.since_s

    def right_since(self, user: Password, broker: BrokerLife) -> float | None:
        """Since when a client's password is surely the user's; None: it may not be."""
        known = self._known.get(user)
        return None if known is None or known.at(broker) is not True else known.since_s

    def certain(self, broker: BrokerLife) -> Iterator[tuple[_Item, bool]]:
        """Yield what a broker has to go by."""
        for item, known in self._known.items():
            is_there = known.at(broker)
            if is_there is not None:
                yield item, is_there

    def named(self) -> Collection[Hashable]:
        """Return all ACLs and passwords that were ever asked for."""
        return self._known.keys()

    def _acls(self) -> Iterator[tuple[Acl, _Certainty]]:
        for item, known in self._known.items():
            if isinstance(item, Acl):
                yield item, known


class Rights:
    """What one user may, by the ACLs that are about it, and whether each is there."""

    def __init__(self, acls: list[tuple[Acl, bool | None]]) -> None:
        self._acls = acls

    def may(self, operation: AclOperation, kind: ResourceType, name: str) -> bool | None:
        """Whether the user may; None: it depends on what is not known."""
        about = [
            (acl.permission, is_there)
            for acl, is_there in self._acls
            if acl.resource_type is kind and _names(acl, name) and _speaks_of(acl, operation)
        ]
        denied = [is_there for permission, is_there in about if permission is AclPermission.DENY]
        allowed = [is_there for permission, is_there in about if permission is AclPermission.ALLOW]
        if True in denied:
            return False
        if True in allowed and None not in denied:
            return True
        return None if True in allowed or None in allowed else False


def _names(acl: Acl, name: str) -> bool:
    if acl.pattern_type is PatternType.PREFIXED:
        return name.startswith(acl.name)
    return acl.name in (WILDCARD, name)


def _speaks_of(acl: Acl, operation: AclOperation) -> bool:
    if acl.operation in (operation, AclOperation.ALL):
        return True
    is_implied = operation is AclOperation.DESCRIBE and acl.operation in _DESCRIBING
    return is_implied and acl.permission is AclPermission.ALLOW
