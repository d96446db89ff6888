"""ACLs: which ones a filter selects (Apache's ResourcePatternFilterTest), which ones can be set."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.core.acl import (
    ANY_ACL,
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
    all_operations,
    parse_host,
    parse_principal,
    problem_of_acl,
    problem_of_filter,
    supported_operations,
)
from oncelog.core.security_limits import ACL_TEXT_LENGTH_MAX

ACL = Acl(
    ResourceType.TOPIC,
    "Name",
    PatternType.LITERAL,
    "User:alice",
    "*",
    AclOperation.READ,
    AclPermission.ALLOW,
)
UNKNOWN, ANY, MATCH, LITERAL, PREFIXED = PatternType


@pytest.mark.parametrize(
    ("name", "kind", "acl_name", "acl_kind", "is_match"),
    [
        ("Different", PREFIXED, "Name", PREFIXED, False),
        ("NAME", LITERAL, "Name", LITERAL, False),
        ("Name", LITERAL, "Name", PREFIXED, False),
        (None, PREFIXED, "Name", PREFIXED, True),
        (None, LITERAL, "Name", PREFIXED, False),
        (None, ANY, "Name", PREFIXED, True),
        (None, MATCH, "Name", PREFIXED, True),
        ("Name", LITERAL, "Name", LITERAL, True),
        ("Name", ANY, "Name", LITERAL, True),
        ("Name", MATCH, "Name", LITERAL, True),
        ("Name-something", MATCH, "Name", LITERAL, False),
        ("*", LITERAL, "*", LITERAL, True),
        ("Name", LITERAL, "*", LITERAL, False),
        ("*", LITERAL, "Name", LITERAL, False),
        ("Name", ANY, "*", LITERAL, False),
        ("Name", MATCH, "*", LITERAL, True),
        ("Name", PREFIXED, "Name", PREFIXED, True),
        ("Name", PREFIXED, "Name-something", PREFIXED, False),
        ("Name-something", PREFIXED, "Name", PREFIXED, False),
        ("Name-something", ANY, "Name", PREFIXED, False),
        ("Name-something", MATCH, "Name", PREFIXED, True),
        ("Name", UNKNOWN, "Name", LITERAL, False),
    ],
)
def test_a_filter_selects_by_names_as_in_kafka(
    name: str | None, kind: PatternType, acl_name: str, acl_kind: PatternType, is_match: bool
) -> None:
    acl = ACL._replace(name=acl_name, pattern_type=acl_kind)
    for resource_type in (ResourceType.TOPIC, ResourceType.ANY):
        assert AclFilter(resource_type, name, kind).matches(acl) is is_match
    assert not AclFilter(ResourceType.GROUP, name, kind).matches(acl)


def test_a_filter_selects_by_each_part() -> None:
    assert ANY_ACL.matches(ACL)
    assert AclFilter(*ACL).matches(ACL)
    others = Acl(
        ResourceType.GROUP,
        "Other",
        PREFIXED,
        "User:*",
        "127.0.0.1",
        AclOperation.ALL,
        AclPermission.DENY,
    )
    for field, other in others._asdict().items():
        assert not AclFilter(*ACL).matches(ACL._replace(**{field: other}))
        assert ANY_ACL.matches(ACL._replace(**{field: other}))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, None),
        ({"host": "10.0.0.0/8"}, None),
        ({"host": "anything"}, None),
        ({"principal": "Group:"}, None),
        ({"resource_type": ResourceType.USER}, None),
        (
            {"resource_type": ResourceType.CLUSTER},
            "The only valid name for the CLUSTER resource is kafka-cluster",
        ),
        ({"resource_type": ResourceType.CLUSTER, "name": "kafka-cluster"}, None),
        ({"name": ""}, "Invalid empty resource name"),
        ({"resource_type": ResourceType.ANY}, "Invalid resourceType ANY"),
        ({"resource_type": ResourceType.UNKNOWN}, "Invalid resourceType UNKNOWN"),
        ({"pattern_type": MATCH}, "Invalid patternType MATCH"),
        ({"pattern_type": ANY}, "Invalid patternType ANY"),
        ({"operation": AclOperation.ANY}, "Invalid operation ANY"),
        ({"operation": AclOperation.UNKNOWN}, "Invalid operation UNKNOWN"),
        ({"permission": AclPermission.ANY}, "Invalid permissionType ANY"),
        ({"permission": AclPermission.UNKNOWN}, "Invalid permissionType UNKNOWN"),
        (
            {"principal": "alice"},
            "Could not parse principal from `alice` (no colon is present separating the "
            "principal type from the principal name)",
        ),
        ({"host": ""}, "Host pattern cannot be null or empty"),
    ],
)
def test_an_acl_that_cannot_be_set_is_refused_as_by_kafka(
    changes: dict[str, Any], problem: str | None
) -> None:
    assert problem_of_acl(ACL._replace(**changes)) == problem


@pytest.mark.parametrize(
    "host",
    [
        "192.168.0.0/33",
        "192.168.0.0/-1",
        "192.168.0.256/24",
        "192.168.0.0/abc",
        "192.168.0.0/255.255.0.0",
        "192.168.0.0/",
        "2001:db8::/129",
        "::ffff:192.168.1.0/24",
        "example.com/test",
    ],
)
def test_a_network_that_is_none_is_refused(host: str) -> None:
    problem = problem_of_acl(ACL._replace(host=host))
    assert problem is not None
    assert problem.startswith(f"Invalid CIDR notation '{host}': ")


@pytest.mark.parametrize("field", ["name", "principal", "host"])
def test_a_text_that_is_too_long_is_refused(field: str) -> None:
    longest: dict[str, Any] = {field: "User:" + "n" * (ACL_TEXT_LENGTH_MAX - 5)}
    assert problem_of_acl(ACL._replace(**longest)) is None
    problem = problem_of_acl(ACL._replace(**{field: longest[field] + "n"}))
    assert problem == "Names, principals and hosts have at most 1024 characters"


def test_an_address_is_the_same_in_each_way_to_write_it() -> None:
    assert parse_host("0:0:0:0:0:0:0:1") == parse_host("::1")
    assert parse_host("::ffff:10.0.0.1") == parse_host("10.0.0.1")
    assert parse_host("localhost") == "localhost"
    assert parse_host("192.168.1.5/24") == parse_host("192.168.1.0/24")


@pytest.mark.parametrize(
    ("chosen", "problem"),
    [
        (ANY_ACL, None),
        (AclFilter(pattern_type=UNKNOWN), "Unknown patternFilter."),
        (AclFilter(ResourceType.UNKNOWN), "Unknown patternFilter."),
        (AclFilter(operation=AclOperation.UNKNOWN), "Unknown entryFilter."),
        (AclFilter(permission=AclPermission.UNKNOWN), "Unknown entryFilter."),
    ],
)
def test_a_filter_with_an_unknown_part_is_refused(chosen: AclFilter, problem: str | None) -> None:
    assert problem_of_filter(chosen) == problem


def test_a_number_that_is_none_is_unknown() -> None:
    assert AclOperation.of(15) is AclOperation.TWO_PHASE_COMMIT
    assert AclOperation.of(16) is AclOperation.UNKNOWN
    assert ResourceType.of(-1) is ResourceType.UNKNOWN
    assert ResourceType.TRANSACTIONAL_ID.title == "TransactionalId"


@pytest.mark.parametrize(
    ("resource_type", "field"),
    [
        (ResourceType.TOPIC, 3576),
        (ResourceType.GROUP, 3400),
        (ResourceType.CLUSTER, 8096),
        (ResourceType.TRANSACTIONAL_ID, 33040),
        (ResourceType.DELEGATION_TOKEN, 256),
        (ResourceType.USER, 24576),
    ],
)
def test_who_may_do_everything_may_do_what_there_is(
    resource_type: ResourceType, field: int
) -> None:
    assert all_operations(resource_type) == field
    assert AclOperation.ALL not in supported_operations(resource_type)


def test_a_principal_is_a_type_and_a_name() -> None:
    assert parse_principal("User:CN=a:b,O=c") == ("User", "CN=a:b,O=c")
    with pytest.raises(ValueError, match="but got 'alice'"):
        parse_principal("alice")
