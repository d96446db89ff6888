"""What is known of rights and passwords, by the answers to those who change them."""

from __future__ import annotations

import pytest

from oncelog.core.acl import Acl, AclOperation, PatternType, ResourceType
from oncelog.core.acl import AclPermission as Permission
from oncelog.simulation.access.ledger import DOUBT_S, AccessLedger, Asking

LIFE, OTHER = (0, 0), (1, 0)
ME = Asking("c1", "10.0.1.2", LIFE)
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
TOPIC = ResourceType.TOPIC


def acl(
    operation: AclOperation,
    permission: Permission = Permission.ALLOW,
    name: str = "*",
    pattern: PatternType = PatternType.LITERAL,
    principal: str = "User:c1",
    host: str = "*",
) -> Acl:
    return Acl(TOPIC, name, pattern, principal, host, operation, permission)


def known(*acls: Acl, is_there: bool = True) -> AccessLedger:
    ledger = AccessLedger()
    ledger.asked(acls)
    ledger.answered(acls, 1.0, is_there=is_there, late=())
    return ledger


def may(
    ledger: AccessLedger, operation: AclOperation, name: str = "a", me: Asking = ME
) -> bool | None:
    return ledger.rights(me).may(operation, TOPIC, name)


def test_a_right_that_is_asked_for_is_there_once_it_is_answered() -> None:
    ledger, read = AccessLedger(), acl(READ)
    assert may(ledger, READ) is False
    ledger.asked([read])
    assert may(ledger, READ) is None
    ledger.answered([read], 1.0, is_there=True, late=())
    assert may(ledger, READ) is True
    assert (may(ledger, DESCRIBE), may(ledger, WRITE)) == (True, False)
    assert may(ledger, READ, me=Asking("c2", ME.host, LIFE)) is False


def test_a_right_that_is_taken_away_is_gone_once_it_is_answered() -> None:
    read = acl(READ)
    ledger = known(read)
    ledger.asked([read])
    assert may(ledger, READ) is None
    ledger.answered([read], 2.0, is_there=False, late=())
    assert may(ledger, READ) is False


@pytest.mark.parametrize(
    "denial",
    [
        acl(READ, Permission.DENY),
        acl(AclOperation.ALL, Permission.DENY),
        acl(READ, Permission.DENY, principal="User:*"),
        acl(READ, Permission.DENY, host=ME.host),
        acl(READ, Permission.DENY, name="a"),
        acl(READ, Permission.DENY, name="a", pattern=PatternType.PREFIXED),
    ],
)
def test_what_denies_wins_and_implies_nothing(denial: Acl) -> None:
    ledger = known(acl(READ), denial)
    assert may(ledger, READ) is False
    is_all = denial.operation is AclOperation.ALL
    assert may(ledger, DESCRIBE) is not is_all
    ledger.asked([denial])
    assert may(ledger, READ) is None
    ledger.answered([denial], 2.0, is_there=False, late=())
    assert may(ledger, READ) is True


def test_what_denies_another_name_host_or_kind_says_nothing() -> None:
    elsewhere = acl(READ, Permission.DENY, host="10.0.1.3")
    named = acl(READ, Permission.DENY, name="b")
    assert may(known(acl(READ), elsewhere, named), READ) is True


def test_a_broker_that_is_late_may_do_either_until_it_has_caught_up() -> None:
    ledger, read = known(acl(READ)), acl(READ)
    ledger.asked([read])
    ledger.answered([read], 2.0, is_there=False, late=[OTHER])
    there = Asking("c1", ME.host, OTHER)
    assert (may(ledger, READ), may(ledger, READ, me=there)) == (False, None)
    assert (ledger.is_late(LIFE), ledger.is_late(OTHER)) == (False, True)
    ledger.caught_up(OTHER, lambda _: True)
    assert ledger.is_late(OTHER)
    ledger.caught_up(OTHER, lambda _: False)
    assert may(ledger, READ, me=there) is False
    assert not ledger.is_late(OTHER)


def test_what_had_no_answer_is_doubtful_for_a_while() -> None:
    ledger, read = known(acl(READ)), acl(READ)
    ledger.asked([read])
    ledger.lost([read], 2.0)
    for at_s, is_sure in ((3.0, False), (2.0 + DOUBT_S, True)):
        ledger.answered([read], at_s, is_there=False, late=())
        assert may(ledger, READ) is (False if is_sure else None)
        assert dict(ledger.certain(LIFE)) == ({read: False} if is_sure else {})


def test_a_password_is_right_or_wrong_since_its_answer() -> None:
    ledger = AccessLedger()
    ledger.asked(["c1"])
    assert (ledger.right_since("c1", LIFE), ledger.wrong_since("c1", LIFE)) == (None, None)
    ledger.answered(["c1"], 1.0, is_there=True, late=())
    assert (ledger.right_since("c1", LIFE), ledger.wrong_since("c1", LIFE)) == (1.0, None)
    ledger.asked(["c1"])
    ledger.answered(["c1"], 2.0, is_there=False, late=[OTHER])
    assert (ledger.right_since("c1", LIFE), ledger.wrong_since("c1", LIFE)) == (None, 2.0)
    assert ledger.wrong_since("c1", OTHER) is None
    assert ledger.wrong_since("c2", LIFE) is None
