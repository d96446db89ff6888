"""ACLs as stock clients and Apache's `kafka-acls` set, list and delete them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    KafkaAdminClient,
    ResourcePattern,
    ResourcePatternFilter,
)
from kafka.admin import ResourceType as PythonResourceType

from oncelog import EmbeddedBroker
from oncelog.core.config_keys import STANDARD_AUTHORIZER
from tests.support.java_tools import run_tool

pytestmark = [pytest.mark.interop, pytest.mark.slow]


@pytest.fixture(scope="module")
def authorizing() -> Iterator[str]:
    """The address of a broker with an authorizer that trusts who does not authenticate."""
    config = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
    with EmbeddedBroker(config=config) as broker:
        yield broker.bootstrap_servers


def kafka_acls(servers: str, *arguments: str) -> str:
    done = run_tool("org.apache.kafka.tools.AclCommand", "--bootstrap-server", servers, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def entry(operation: str, permission: str = "ALLOW", host: str = "*") -> str:
    return f"(principal=User:app, host={host}, operation={operation}, permissionType={permission})"


def test_kafka_acls_works_unchanged(java_class_path: str, authorizing: str) -> None:
    assert java_class_path
    user = ("--allow-principal", "User:app")
    topic, group = ("--topic", "orders"), ("--group", "billing")
    kafka_acls(authorizing, "--add", *user, "--producer", "--consumer", *topic, *group)
    prefix = ("--resource-pattern-type", "prefixed", "--topic", "or", "--operation", "Alter")
    kafka_acls(authorizing, "--add", "--deny-principal", "User:app", *prefix)
    shown = kafka_acls(authorizing, "--list")
    literal = "resourceType=TOPIC, name=orders, patternType=LITERAL"
    assert f"Current ACLs for resource `ResourcePattern({literal})`" in shown
    for operation in ("READ", "WRITE", "DESCRIBE", "CREATE"):
        assert entry(operation) in shown
    assert "name=billing" in shown
    assert entry("ALTER", "DENY") in shown
    matching = ("--resource-pattern-type", "match", "--topic", "orders")
    shown = kafka_acls(authorizing, "--list", *matching, "--principal", "User:app")
    assert entry("ALTER", "DENY") in shown
    assert "billing" not in shown
    kafka_acls(authorizing, "--remove", "--force", *user, *topic, "--operation", "Read")
    shown = kafka_acls(authorizing, "--list", *topic)
    assert entry("READ") not in shown
    assert entry("WRITE") in shown
    for resource in ((*topic, *group), prefix[:4]):
        kafka_acls(authorizing, "--remove", "--force", *resource)
    assert "Current ACLs" not in kafka_acls(authorizing, "--list")


def test_confluent_kafka_sets_lists_and_deletes_acls(authorizing: str) -> None:
    admin = AdminClient({"bootstrap.servers": authorizing})
    rule = ("User:app", "*", AclOperation.READ, AclPermissionType.ALLOW)
    wanted = [
        AclBinding(ResourceType.TOPIC, "t", ResourcePatternType.LITERAL, *rule),
        AclBinding(ResourceType.GROUP, "g", ResourcePatternType.PREFIXED, *rule),
    ]
    for creation in admin.create_acls(wanted).values():
        creation.result(10)
    any_entry: tuple[Any, ...] = (None, None, AclOperation.ANY, AclPermissionType.ANY)
    any_name: Any = None
    everything = AclBindingFilter(ResourceType.ANY, any_name, ResourcePatternType.ANY, *any_entry)
    assert set(admin.describe_acls(everything).result(10)) == set(wanted)
    (deletion,) = admin.delete_acls([everything]).values()
    assert set(deletion.result(10)) == set(wanted)
    assert admin.describe_acls(everything).result(10) == []


def test_kafka_python_sets_lists_and_deletes_acls(authorizing: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=authorizing)
    try:
        rule = ("User:app", "*", ACLOperation.WRITE, ACLPermissionType.DENY)
        wanted = ACL(*rule, ResourcePattern(PythonResourceType.TOPIC, "t"))
        outcome = admin.create_acls([wanted])
        assert outcome["succeeded"] == [wanted]
        pattern = ResourcePatternFilter(PythonResourceType.ANY, None, ACLResourcePatternType.ANY)
        everything = ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, pattern)
        found, _ = admin.describe_acls(everything)
        assert found == [wanted]
        ((_, deleted, _),) = admin.delete_acls([everything])
        assert deleted == [wanted]
    finally:
        admin.close()
