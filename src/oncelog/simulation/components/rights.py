"""Simulates what decides who a client is and what it may do, without a broker around it.

ACLs come and go between the questions, each of which is asked twice: decisions are remembered. The
answers are compared with Kafka's rules over the list of all ACLs (`rights_model`). Who a client is
follows from a certificate's name or an exchange of SCRAM (`logins`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Final

from oncelog.core.acl import Acl, AclFilter, AclOperation, AclPermission, PatternType, ResourceType
from oncelog.security.authorizer import AclRules, Ruling
from oncelog.simulation.components.logins import logins
from oncelog.simulation.components.rights_model import (
    ADDRESSES,
    EXISTING,
    IMPLIED_BY,
    ExpectedRuling,
    PlainAcl,
    Question,
    StatedRights,
    selected,
)

__all__ = ["rights", "rulings"]

CLUSTERS_COUNT: Final = 3
CHANGES_COUNT: Final = 4
QUESTIONS_COUNT: Final = 10
_NAMES: Final = ("a", "ab", "abc", "b", "hard", "hardcode", "*", "a*", "x" * 249)
_LONG_LENGTH: Final = 250
"""Decisions on names as long as this are not remembered: no topic has such a name."""

_PRINCIPALS: Final = ("User:ann", "User:bob", "User:ANONYMOUS", "User:*", "Group:ann")
_HOSTS: Final = tuple(sorted({host for hosts in ADDRESSES.values() for host in hosts}))
_CLUSTER: Final = "kafka-cluster"


def rights(rng: random.Random) -> Iterator[str]:
    """Simulate some clusters with ACLs, and some logins; yield what is wrong."""
    yield from rulings(rng)
    yield from logins(rng)


_Matches = Callable[[AclFilter, Acl], bool]


def rulings(
    rng: random.Random,
    make: type[AclRules] = AclRules,
    matches: _Matches = AclFilter.matches,
) -> Iterator[str]:
    """Simulate some clusters whose ACLs change; yield what is wrong with the first that is."""
    for number in range(CLUSTERS_COUNT):
        for text in _Ruled(rng, make, matches).live():
            yield f"cluster {number}: {text}"
            return


class _Ruled:
    """The ACLs of a cluster. Few types and operations, so that many ACLs are about one resource."""

    def __init__(self, rng: random.Random, make: type[AclRules], matches: _Matches) -> None:
        self._rng = rng
        self._make = make
        self._matches = matches
        self._types = rng.sample(sorted(EXISTING), rng.choice((1, 2)))
        self._operations = self._related()
        self._names = rng.sample(_NAMES, rng.choice((2, 3, 5)))
        self._people = rng.sample(_PRINCIPALS, rng.choice((1, 2, 3)))
        self._addresses = rng.sample(sorted(ADDRESSES), 2)
        self._denied_share = rng.choice((0.1, 0.4))
        self._acls: list[PlainAcl] = []
        self._super_users = frozenset(rng.sample(_PRINCIPALS, rng.choice((0, 0, 1))))
        self._allow_everyone = rng.random() < 0.4

    def _related(self) -> list[str]:
        """Operations of the first type: one of which others may follow, and some more."""
        existing = EXISTING[self._types[0]].split()
        first = self._rng.choice([each for each in existing if each in IMPLIED_BY] or existing)
        others = [*IMPLIED_BY.get(first, ()), *existing, "CREATE"]
        return [first, *self._rng.sample(others, min(len(others), 2))]

    def live(self) -> Iterator[str]:
        """Change the ACLs, and ask; stop at what is wrong."""
        for _ in range(CHANGES_COUNT):
            yield from self._change()
            self._rng.shuffle(self._acls)
            acls = [acl.real for acl in self._acls]
            real = self._make(acls, self._super_users, allow_everyone=self._allow_everyone)
            model = StatedRights(tuple(self._acls), self._super_users, self._allow_everyone)
            for _ in range(QUESTIONS_COUNT):
                one = self._question()
                for text in self._ask(real, model, one):
                    sentences = "; ".join(sorted(acl.sentence for acl in acls))
                    trusted = sorted(self._super_users), self._allow_everyone
                    yield f"{one} by {trusted}, {sentences}: {text}"
                    return

    def _change(self) -> Iterator[str]:
        if self._acls and self._rng.random() < 0.4:
            chosen = self._filter(self._rng.choice(self._acls))
            found = [acl for acl in self._acls if self._matches(chosen, acl.real)]
            due = list(selected(self._acls, chosen))
            if found != due:
                yield f"{chosen} selects {found}, not {due}"
            self._acls = [acl for acl in self._acls if acl not in due]
        for _ in range(self._rng.choice((1, 2, 4))):
            self._acls.append(self._acl())

    def _acl(self) -> PlainAcl:
        rng = self._rng
        kind = rng.choice(self._types)
        is_wide = rng.random() < 0.2
        is_denied = rng.random() < self._denied_share
        hosts = ADDRESSES[rng.choice(self._addresses)] if rng.random() < 0.8 else _HOSTS
        return PlainAcl(
            kind,
            self._name(kind),
            rng.choice(("LITERAL", "PREFIXED")),
            rng.choice([*self._people, "User:*"]),
            "*" if rng.random() < 0.5 else rng.choice(hosts),
            "ALL" if is_wide else rng.choice(self._operations),
            "DENY" if is_denied else "ALLOW",
        )

    def _name(self, kind: str) -> str:
        if kind == "CLUSTER":
            return _CLUSTER
        return self._rng.choice(self._names)

    def _filter(self, plain: PlainAcl) -> AclFilter:
        """A filter that selects an ACL, or nearly does."""
        rng, acl = self._rng, plain.real
        pattern = rng.choice((PatternType.ANY, PatternType.MATCH, *[acl.pattern_type] * 3))
        name = rng.choice((None, acl.name, acl.name, acl.name + "b"))
        is_any = [rng.random() < 0.5 for _ in range(5)]
        return AclFilter(
            ResourceType.ANY if is_any[0] else acl.resource_type,
            name,
            pattern,
            None if is_any[1] else acl.principal,
            None if is_any[2] else acl.host,
            AclOperation.ANY if is_any[3] else acl.operation,
            AclPermission.ANY if is_any[4] else acl.permission,
        )

    # --- questions

    def _question(self) -> Question:
        rng = self._rng
        kind = rng.choice(self._types) if rng.random() < 0.95 else rng.choice(sorted(EXISTING))
        name = self._name(kind) + rng.choice(("", "", "", "c"))
        return Question(
            rng.choice(self._people) if rng.random() < 0.9 else "User:carl",
            rng.choice(self._addresses),
            self._operations[0] if rng.random() < 0.6 else rng.choice(self._operations),
            kind,
            "" if rng.random() < 0.25 else name,
        )

    def _ask(self, real: AclRules, model: StatedRights, asked: Question) -> Iterator[str]:
        """Ask twice, as the first answer is remembered, and without what is remembered."""
        who = asked.principal, asked.address
        what = AclOperation[asked.operation], ResourceType[asked.resource_type]
        if not asked.name:
            due = model.is_any_allowed(asked)
            found = real.allows_any(*who, *what), real.allows_any(*who, *what)
            if (*found, real.decide_any(*who, *what)) != (due, due, due):
                yield f"on any of the type {found}, not {due}"
            return
        verdict = model.verdict(asked, asked.name)
        first = real.allows(*who, *what, asked.name)
        decisions = real.decisions_of(*who)
        if ((*what, asked.name) in decisions) != (len(asked.name) < _LONG_LENGTH):
            yield f"{len(decisions)} decisions are remembered, or not, with that of this name"
        found = first, decisions[(*what, asked.name)]
        if found != (verdict.is_allowed, verdict.is_allowed):
            yield f"{found}, not {verdict}"
        yield from _unlike(real.ruling(*who, *what, asked.name), verdict)
        if self._rng.random() < 0.15:
            bits = real.authorized_operations(*who, what[1], asked.name)
            due_bits = model.authorized_operations(asked)
            if bits != due_bits:
                yield f"the authorized operations are {bits:#b}, not {due_bits:#b}"


def _unlike(ruling: Ruling, verdict: ExpectedRuling) -> Iterator[str]:
    """What a ruling says that it may not say."""
    reason = f"MatchingAcl(acl={ruling.acl})" if verdict.deciding else verdict.word
    named = [acl.real for acl in verdict.deciding]
    is_named = ruling.acl in named if named else ruling.acl is None
    if ruling.is_allowed != verdict.is_allowed or ruling.reason != reason or not is_named:
        yield f"{ruling}, not {verdict}"
