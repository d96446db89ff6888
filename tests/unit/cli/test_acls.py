"""`oncelog acls`: at a broker, and before there is one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from oncelog import EmbeddedBroker
from oncelog.cli.main import main
from oncelog.core.config_keys import STANDARD_AUTHORIZER

Acls = Callable[..., Result]


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    config = {
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:ANONYMOUS;User:admin",
    }
    with EmbeddedBroker(config=config) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def acls(servers: str) -> Iterator[Acls]:
    """Calls `oncelog acls ARGUMENTS`; no ACL is left."""

    def call(*arguments: str) -> Result:
        return asked(*arguments, "--bootstrap-server", servers)

    yield call
    for permission in ((), ("--deny",)):
        call("remove", "app", "any", "any", *permission)
    assert call("list").stdout == ""


def asked(*arguments: str) -> Result:
    result = CliRunner().invoke(main, ["acls", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def listed(result: Result) -> list[tuple[str, ...]]:
    assert result.exit_code == 0, result.stderr
    return [tuple(json.loads(line).values()) for line in result.stdout.splitlines()]


def test_acls_are_added_listed_and_removed(acls: Acls) -> None:
    added = acls("add", "app", "read,write", "topic:orders", "topic:o-*", "group:g\\*")
    assert added.exit_code == 2
    assert "a group has no operation write: it has read, delete, describe" in added.stderr
    added = acls("add", "app", "read,Write", "topic:orders", "topic:o-*")
    assert added.stdout == (
        "User:app may READ topic orders\nUser:app may WRITE topic orders\n"
        "User:app may READ topics o-*\nUser:app may WRITE topics o-*\n"
    )
    assert acls("add", "app", "all", "group:g\\*", "--host", "10.0.0.0/8").exit_code == 0
    assert acls("add", "app", "alter-configs", "cluster", "--deny").exit_code == 0
    assert listed(acls("list", "--json", "--user", "app")) == [
        ("User:app", "ALLOW", "READ", "TOPIC", "o-", "PREFIXED", "*"),
        ("User:app", "ALLOW", "WRITE", "TOPIC", "o-", "PREFIXED", "*"),
        ("User:app", "ALLOW", "READ", "TOPIC", "orders", "LITERAL", "*"),
        ("User:app", "ALLOW", "WRITE", "TOPIC", "orders", "LITERAL", "*"),
        ("User:app", "ALLOW", "ALL", "GROUP", "g*", "LITERAL", "10.0.0.0/8"),
        ("User:app", "DENY", "ALTER_CONFIGS", "CLUSTER", "kafka-cluster", "LITERAL", "*"),
    ]
    assert listed(acls("list", "--json", "--user", "other")) == []
    assert len(listed(acls("list", "topic:o-x", "cluster", "--json"))) == 3
    removed = acls("remove", "app", "write", "topic:o-*")
    assert removed.stdout == "removed: User:app may WRITE topics o-*\n"
    removed = acls("remove", "app", "any", "topic:orders", "cluster")
    assert removed.stdout == (
        "removed: User:app may READ topic orders\nremoved: User:app may WRITE topic orders\n"
    )
    assert acls("remove", "app", "any", "cluster", "--deny").exit_code == 0


def test_what_a_producer_and_a_consumer_need_has_a_word(acls: Acls) -> None:
    assert acls("add", "app", "produce", "topic:t", "transactional-id:x").stdout == (
        "User:app may WRITE topic t\nUser:app may DESCRIBE topic t\nUser:app may CREATE topic t\n"
        "User:app may WRITE transactional id x\nUser:app may DESCRIBE transactional id x\n"
    )
    assert acls("add", "app", "consume", "topic:t", "group:g").stdout == (
        "User:app may READ topic t\nUser:app may DESCRIBE topic t\nUser:app may READ group g\n"
    )


@pytest.mark.parametrize(
    ("question", "reason", "is_allowed"),
    [
        ("app write topic:orders", "User:app may WRITE topics o*", True),
        ("app describe topic:orders", "User:app may WRITE topics o*", True),
        ("app read topic:orders", "no ACL lets User:app READ topic orders", False),
        ("app write topic:other", "User:app may not WRITE topic other", False),
        ("app read group:g", "no ACL lets User:app READ group g", False),
        ("app read group:g --host 10.0.0.1", "User:app at 10.0.0.1 may READ group g", True),
        ("app alter cluster", "no ACL lets User:app ALTER the cluster", False),
        ("app write transactional-id:x", "no ACL lets User:app WRITE transactional id x", False),
        ("admin alter cluster", "User:admin is a super user", True),
    ],
)
def test_a_check_says_what_decides(
    acls: Acls, question: str, reason: str, is_allowed: bool
) -> None:
    acls("add", "app", "write", "topic:o*")
    acls("add", "app", "write", "topic:other", "--deny")
    acls("add", "app", "read", "group:g", "--host", "10.0.0.1")
    result = acls("check", *question.split())
    verdict = "allowed" if is_allowed else "denied"
    assert result.stdout == f"{verdict}: {reason}\n", result.stderr
    assert result.exit_code == (0 if is_allowed else 1)


def test_a_check_of_several_operations_fails_if_one_is_denied(acls: Acls) -> None:
    acls("add", "app", "read", "topic:t")
    result = acls("check", "app", "consume", "topic:t", "--json")
    assert [json.loads(line)["verdict"] for line in result.stdout.splitlines()] == ["allowed"] * 2
    assert result.exit_code == 0
    assert acls("check", "app", "read,write", "topic:t").exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("add app fly topic:t", "'fly' is no operation: one of all, read, write"),
        ("add app raed topic:t", "'raed' is no operation: did you mean read?"),
        ("add app read orders", "'orders' names no resource: write topic:NAME"),
        ("add app read topic:", "'topic:' names no resource"),
        ("add app read table:t", "'table:t' names no resource"),
        ("add app produce group:g", "produce is about a topic and a transactional id"),
        ("add app any topic:t", "any only selects ACLs to remove"),
        ("add app read any", "any only selects ACLs to remove"),
        ("add app read topic:t --host nowhere", "'nowhere' is no address: name an IP address"),
        ("add app read topic:t --host 10.0.0.0/99", "name an IP address, a network (10.0.0.0/8)"),
        ("remove app read topic:none", "there are no such ACLs: see `oncelog acls list`"),
        ("check app read topic:t*", "name one resource, as topic:orders"),
    ],
)
def test_what_cannot_be_done_is_told_in_a_line(acls: Acls, arguments: str, text: str) -> None:
    result = acls(*arguments.split())
    assert result.exit_code != 0
    assert text in result.stderr
    assert result.stderr.count("\n") == 1


def test_the_first_acls_are_added_before_the_broker_has_ever_run(tmp_path: Path) -> None:
    folder = ("--data-dir", str(tmp_path / "data"))
    assert asked("add", "app", "read", "topic:t", *folder).exit_code == 0
    assert listed(asked("list", "--json", *folder))[0][2] == "READ"
    with EmbeddedBroker(data_dir=tmp_path / "data"):
        running = asked("list", *folder)
        assert "the broker runs: ask it, by --bootstrap-server" in running.stderr
    assert asked("check", "app", "read", "topic:t", *folder).exit_code == 0
    assert asked("add", "a" * 2000, "read", "topic:t", *folder).stderr.endswith(
        "Names, principals and hosts have at most 1024 characters (INVALID_REQUEST)\n"
    )
    removed = asked("remove", "app", "any", "any", *folder)
    assert removed.stdout == "removed: User:app may READ topic t\n"
    assert asked("list", *folder).stdout == ""


def test_a_check_knows_that_everyone_may_where_no_acl_is() -> None:
    config = {
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:ANONYMOUS",
        "allow.everyone.if.no.acl.found": True,
    }
    with EmbeddedBroker(config=config) as broker:
        server = ("--bootstrap-server", broker.bootstrap_servers)
        result = asked("check", "app", "read", "topic:t", *server)
        assert result.stdout == "allowed: no ACL is about topic t, and then everyone may\n"
        assert asked("add", "other", "read", "topic:t", *server).exit_code == 0
        result = asked("check", "app", "read", "topic:t", *server)
        assert result.stdout == "denied: no ACL lets User:app READ topic t\n"
