"""Who may do what: precedence, any resource of a type, and what is remembered."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.core import security_limits
from oncelog.core.acl import (
    Acl,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
    parse_super_users,
)
from oncelog.security.authorizer import AclRules
from tests.unit.security.authorizer_facts import (
    FACTS,
    SUPER_USERS,
    Fact,
    acl_of,
    acls_of,
    questions_of,
)

READ, TOPIC = AclOperation.READ, ResourceType.TOPIC
HERE = "127.0.0.1"


@pytest.mark.parametrize("fact", FACTS, ids=[fact.title for fact in FACTS])
def test_what_follows_from_acls_is_as_in_kafka(fact: Fact) -> None:
    rules = AclRules(
        acls_of(fact.acls), parse_super_users(SUPER_USERS), allow_everyone=fact.allow_everyone
    )
    questions = questions_of(fact.answers)
    assert questions
    for _ in range(2):  # What is remembered is the same.
        for wanted, principal, host, operation, kind, name in questions:
            if name is None:
                found = rules.allows_any(principal, host, operation, kind)
            else:
                found = rules.allows(principal, host, operation, kind, name)
            assert found is wanted, (principal, host, operation, kind, name)


# --- the same, by a reference that looks at all ACLs

PRINCIPALS, HOSTS = ["User:a", "User:b"], ["1.1.1.1", "2.2.2.2"]
OPERATIONS = [AclOperation.READ, AclOperation.DESCRIBE, AclOperation.WRITE]
KINDS = [ResourceType.TOPIC, ResourceType.GROUP]
NAMES = ["a", "ab", "abc", "b", "hardcode", "hard", "*"]

ACLS = st.lists(
    st.builds(
        Acl,
        st.sampled_from(KINDS),
        st.sampled_from(NAMES),
        st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
        st.sampled_from([*PRINCIPALS, "User:*"]),
        st.sampled_from([*HOSTS, "*"]),
        st.sampled_from([*OPERATIONS, AclOperation.ALL, AclOperation.DESCRIBE_CONFIGS]),
        st.sampled_from([AclPermission.ALLOW, AclPermission.ALLOW, AclPermission.DENY]),
    ),
    max_size=8,
)


def applies(acl: Acl, principal: str, host: str) -> bool:
    return acl.principal in (principal, "User:*") and acl.host in (host, "*")


def is_about(acl: Acl, name: str) -> bool:
    if acl.pattern_type is PatternType.PREFIXED:
        return name.startswith(acl.name)
    return acl.name in (name, "*")


def by_reference(
    acls: list[Acl], principal: str, host: str, operation: AclOperation, name: str, *, default: bool
) -> bool:
    about = [acl for acl in acls if is_about(acl, name)]
    own = [acl for acl in about if applies(acl, principal, host)]
    if any(
        acl.permission is AclPermission.DENY and acl.operation in (operation, AclOperation.ALL)
        for acl in own
    ):
        return False
    granting = {operation, AclOperation.ALL}
    if operation is AclOperation.DESCRIBE:
        granting |= {AclOperation.READ, AclOperation.WRITE}
    allowed = any(
        acl.permission is AclPermission.ALLOW and acl.operation in granting for acl in own
    )
    return allowed or (default and not about)


def any_by_reference(acls: list[Acl], principal: str, host: str, operation: AclOperation) -> bool:
    """Kafka's loop over the names of all ACLs."""
    own = [
        acl
        for acl in acls
        if applies(acl, principal, host) and acl.operation in (operation, AclOperation.ALL)
    ]
    named = {
        (permission, kind): {
            acl.name for acl in own if (acl.permission, acl.pattern_type) == (permission, kind)
        }
        for permission in AclPermission
        for kind in PatternType
    }
    denied = named[AclPermission.DENY, PatternType.LITERAL]
    denied_prefixes = named[AclPermission.DENY, PatternType.PREFIXED]
    allowed = named[AclPermission.ALLOW, PatternType.LITERAL]
    if "*" in denied:
        return False
    if "*" in allowed:
        return True
    return any(
        not any(name[:end] in denied_prefixes for end in range(1, len(name) + 1))
        for name in (allowed - denied) | named[AclPermission.ALLOW, PatternType.PREFIXED]
    )


@pytest.mark.slow
@settings(max_examples=40)
@given(acls=ACLS, default=st.booleans())
def test_a_decision_is_that_of_a_scan_of_all_acls(acls: list[Acl], default: bool) -> None:
    rules = AclRules(acls, allow_everyone=default)
    for principal, host, operation, kind in itertools.product(
        PRINCIPALS, HOSTS, OPERATIONS[:2], KINDS
    ):
        chosen = [acl for acl in acls if acl.resource_type is kind]
        for name in [*NAMES, "abcd"]:
            wanted = by_reference(chosen, principal, host, operation, name, default=default)
            assert rules.allows(principal, host, operation, kind, name) is wanted
        wanted = by_reference(
            chosen, principal, host, operation, "hardcode", default=default
        ) or any_by_reference(chosen, principal, host, operation)
        assert rules.allows_any(principal, host, operation, kind) is wanted


# --- what is said of a decision


@pytest.mark.parametrize(
    ("principal", "topic", "reason"),
    [
        ("User:root", "foo", "SuperUser"),
        ("User:bob", "foobar", "DefaultDeny"),
        ("User:bob", "other", "DefaultAllow"),
        (
            "User:alice",
            "foobar",
            "MatchingAcl(acl=StandardAcl[resourceType=TOPIC, resourceName=foo, "
            "patternType=PREFIXED, principal=User:alice, host=*, operation=READ, "
            "permissionType=ALLOW])",
        ),
        (
            "User:alice",
            "foo",
            "MatchingAcl(acl=StandardAcl[resourceType=TOPIC, resourceName=foo, "
            "patternType=LITERAL, principal=User:*, host=*, operation=ALL, permissionType=DENY])",
        ),
    ],
)
def test_a_ruling_says_what_it_follows_from(principal: str, topic: str, reason: str) -> None:
    acls = [acl_of("allow alice * READ topic~:foo"), acl_of("deny * * ALL topic:foo")]
    rules = AclRules(acls, ["User:root"], allow_everyone=True)
    ruling = rules.ruling(principal, HERE, READ, TOPIC, topic)
    assert ruling.reason == reason
    assert ruling.is_allowed is (reason != "DefaultDeny" and "DENY" not in reason)


def test_authorized_operations_are_those_that_are_allowed() -> None:
    acls = acls_of("allow a * READ topic:t\nallow a * ALL group:g\nallow a * ALL cluster:*")
    rules = AclRules(acls)
    read_and_describe = 1 << AclOperation.READ | 1 << AclOperation.DESCRIBE
    assert rules.authorized_operations("User:a", HERE, TOPIC, "t") == read_and_describe
    assert rules.authorized_operations("User:b", HERE, TOPIC, "t") == 0
    assert rules.authorized_operations("User:a", HERE, ResourceType.GROUP, "g") == 3400


# --- what is remembered


def test_what_is_remembered_of_a_client_is_bounded() -> None:
    rules = AclRules(acls_of("allow a * READ topic~:t"))
    decisions = rules.decisions_of("User:a", HERE)
    for number in range(security_limits.ACL_DECISIONS_COUNT_MAX + 1):
        assert decisions[READ, TOPIC, f"t{number}"]
    assert len(decisions) == 1
    assert not rules.allows("User:a", HERE, READ, TOPIC, "n" * 250)
    assert len(decisions) == 1


def test_the_clients_of_which_something_is_remembered_are_bounded() -> None:
    rules = AclRules()
    first = rules.decisions_of("User:a", HERE)
    assert rules.decisions_of("User:a", HERE) is first
    for number in range(security_limits.ACL_CLIENTS_COUNT_MAX):
        rules.decisions_of("User:a", f"10.0.0.{number}")
    assert rules.decisions_of("User:a", HERE) is not first


# --- super.users


def test_super_users_are_separated_by_semicolons() -> None:
    assert parse_super_users(" User:a ;;User:CN=b,O=c; ") == {"User:a", "User:CN=b,O=c"}


@pytest.mark.parametrize("text", ["a", "User:a;b", ":a"])
def test_a_super_user_without_a_type_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="principalType:principalName"):
        parse_super_users(text)
