"""ACLs and logins that are simulated alone: sound as they are, and slips of them are seen."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from oncelog.core.acl import (
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from oncelog.core.sasl import ScramCredential
from oncelog.security.authorizer import AclRules, Ruling
from oncelog.security.mechanism import MechanismReply
from oncelog.security.principal_rules import PrincipalRules
from oncelog.security.scram import ScramMechanism
from oncelog.simulation.components.logins import exchanges, names
from oncelog.simulation.components.rights import rights, rulings


def ruled(make: type[AclRules], runs: int = 20) -> list[str]:
    """What the first run with ACLs shows that shows anything."""
    for seed in range(runs):
        texts = list(rulings(random.Random(f"{seed}:rights"), make))
        if texts:
            return texts
    return []


def test_rights_as_they_are_pass() -> None:
    for seed in range(25):
        assert list(rights(random.Random(f"{seed}:rights"))) == []


class ForgetsDenials(AclRules):
    def __init__(
        self, acls: Iterable[Acl], super_users: Iterable[str], *, allow_everyone: bool
    ) -> None:
        allowing = [acl for acl in acls if acl.permission is AclPermission.ALLOW]
        super().__init__(allowing, super_users, allow_everyone=allow_everyone)


class TakesPrefixesForNames(AclRules):
    def __init__(
        self, acls: Iterable[Acl], super_users: Iterable[str], *, allow_everyone: bool
    ) -> None:
        literals = [acl._replace(pattern_type=PatternType.LITERAL) for acl in acls]
        super().__init__(literals, super_users, allow_everyone=allow_everyone)


class ComparesHostsAsTexts(AclRules):
    """A network, and another way to write an address, stand for no client."""

    def __init__(
        self, acls: Iterable[Acl], super_users: Iterable[str], *, allow_everyone: bool
    ) -> None:
        hosts = [acl._replace(host=acl.host.replace("/", "-")) for acl in acls]
        super().__init__(hosts, super_users, allow_everyone=allow_everyone)


class AllowsAllThatNoAclOfTheClientIsAbout(AclRules):
    """`allow.everyone.if.no.acl.found` asks for ACLs about the resource, of any client."""

    def ruling(
        self,
        principal: str,
        host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
    ) -> Ruling:
        found = super().ruling(principal, host, operation, resource_type, name)
        return self._default if found.acl is None and not found.is_allowed else found


class AllowsAnyByImplication(AclRules):
    """What is allowed on some resource follows from no other operation."""

    def decide_any(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        asked = [operation, *[AclOperation.READ] * (operation is AclOperation.DESCRIBE)]
        decide = super().decide_any
        return any(decide(principal, host, one, resource_type) for one in asked)


@pytest.mark.parametrize(
    "slip",
    [
        ForgetsDenials,
        TakesPrefixesForNames,
        ComparesHostsAsTexts,
        AllowsAllThatNoAclOfTheClientIsAbout,
        AllowsAnyByImplication,
    ],
)
def test_a_slip_of_the_authorizer_is_seen(slip: type[AclRules]) -> None:
    assert ruled(slip)


def test_a_filter_of_acls_that_forgets_hosts_is_seen() -> None:
    def forgetful(chosen: AclFilter, acl: Acl) -> bool:
        return chosen._replace(host=None).matches(acl)

    assert any(
        list(rulings(random.Random(f"{seed}:rights"), matches=forgetful)) for seed in range(20)
    )


class TakesAnyProof(ScramMechanism):
    def _proves(self, proof: str, signed: bytes) -> bool:
        return bool(proof)


class ForgetsTheBinding(ScramMechanism):
    """The header of the first message may be another than the one that is proved."""

    def take(self, message: bytes, now_ms: float) -> MechanismReply:
        if self._first is not None:
            self._first = self._first._replace(header="n,,")
        return super().take(message, now_ms)


@pytest.mark.parametrize("slip", [TakesAnyProof, ForgetsTheBinding])
def test_a_slip_of_a_login_is_seen(slip: type[ScramMechanism]) -> None:
    assert any(list(exchanges(random.Random(f"{seed}:rights"), slip)) for seed in range(20))


def test_a_decoy_that_tells_who_exists_is_seen() -> None:
    def telling(*_: object) -> ScramCredential:
        return ScramCredential(b"salt", b"", b"", 4096)

    assert any(
        list(exchanges(random.Random(f"{seed}:rights"), decoy_of=telling)) for seed in range(20)
    )


class MatchesAPartOfTheName(PrincipalRules):
    def name_of(self, distinguished_name: str) -> str | None:
        return super().name_of(distinguished_name.removesuffix(",O=x-1"))


def test_a_slip_of_the_names_of_certificates_is_seen() -> None:
    assert any(
        list(names(random.Random(f"{seed}:rights"), MatchesAPartOfTheName)) for seed in range(20)
    )
