"""Which ACLs take a right away, and who is named as late."""

from __future__ import annotations

import pytest

from oncelog.core.acl import AclOperation, AclPermission, PatternType, ResourceType
from oncelog.simulation.access.ledger import AccessLedger, Asking
from oncelog.simulation.access.warden import RIGHTS, AccessChange, initial_rights, named_late, taken

HOST = "10.0.1.2"
ME = Asking("c1", HOST, (0, 0))


def rights(ledger: AccessLedger, right: str) -> bool | None:
    operation, kind = RIGHTS[right]
    one = AclOperation.WRITE if operation is AclOperation.ALL else operation
    return ledger.rights(ME).may(one, kind, "target")


@pytest.mark.parametrize("form", ["delete", "user", "host", "everyone", "name", "prefix"])
@pytest.mark.parametrize("right", RIGHTS)
def test_a_right_goes_in_each_way_and_comes_back(right: str, form: str) -> None:
    ledger, initial = AccessLedger(), initial_rights("c1")
    ledger.asked(initial)
    ledger.answered(initial, 0.0, is_there=True, late=())
    assert rights(ledger, right) is True
    acls, are_there = taken("c1", right, form, "target", HOST)
    for is_there, expected in ((are_there, False), (not are_there, True)):
        ledger.asked(acls)
        ledger.answered(acls, 1.0, is_there=is_there, late=())
        # What allows to read a group, or to write as an id, allows to describe it as well.
        is_implied = right in ("describe-group", "describe-id") and form == "delete"
        assert rights(ledger, right) is (expected or is_implied)


def test_a_denial_of_one_name_leaves_the_others() -> None:
    (acl,), is_there = taken("c1", "write-topic", "prefix", "target", HOST)
    assert (acl.name, acl.pattern_type, is_there) == ("targ", PatternType.PREFIXED, True)
    assert (acl.permission, acl.resource_type) == (AclPermission.DENY, ResourceType.TOPIC)


def test_a_change_is_told_without_a_secret() -> None:
    acls, _ = taken("c1", "write-topic", "host", "target", HOST)
    told = AccessChange((*acls, "c1"), False, 0).text
    assert told == (
        "take away DENY User:c1 WRITE on TOPIC LITERAL * from 10.0.1.2; the password of c1"
    )


def test_those_are_late_of_whom_a_broker_says_so() -> None:
    line = "oncelog.broker.controller.shell: brokers [0, 2] have not said that they go by users"
    assert named_late(line) == {0, 2}
    assert named_late("oncelog.broker: something else") == set()
