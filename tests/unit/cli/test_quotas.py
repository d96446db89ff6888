"""`oncelog quotas` at a broker."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from click.testing import Result

Oncelog = Callable[..., Result]


@pytest.fixture(autouse=True)
def _none_left(oncelog: Oncelog) -> Iterator[None]:
    yield
    assert oncelog("quotas", "list").stdout == ""


def listed(oncelog: Oncelog) -> list[tuple[object, ...]]:
    found = oncelog("quotas", "list", "--json")
    assert found.exit_code == 0, found.stderr
    rows = [json.loads(line) for line in found.stdout.splitlines()]
    return [(row["user"], row["client_id"], row["key"], row["value"]) for row in rows]


def test_quotas_are_set_listed_and_removed(oncelog: Oncelog) -> None:
    for options in (
        ("--each-client-id",),
        ("--user", "app", "--each-client-id"),
        ("--user", "app", "--client-id", "a"),
        ("--each-user",),
    ):
        done = oncelog("quotas", "set", "producer_byte_rate=1000000", *options)
        assert done.exit_code == 0, done.stderr
    done = oncelog("quotas", "set", "request_percentage=12.5", "--each-user")
    assert done.stdout == "the quotas of user <default> have changed\n"
    rate = ("producer_byte_rate", 1_000_000)
    assert listed(oncelog) == [
        ("app", "a", *rate),
        ("app", "<default>", *rate),
        ("<default>", "-", *rate),
        ("<default>", "-", "request_percentage", "12.5"),
        ("-", "<default>", *rate),
    ]
    removed = oncelog("quotas", "remove", "request_percentage", "--each-user")
    assert removed.stdout == "removed from user <default>: request_percentage\n"
    for options in (
        ("--each-client-id",),
        ("--user", "app", "--each-client-id"),
        ("--user", "app", "--client-id", "a"),
        ("--each-user",),
    ):
        assert oncelog("quotas", "remove", *options).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("set", "producer_byte_rate=1"), "whose? name --user, --client-id, --each-user or"),
        (("set", "rate=1", "--user", "a"), "rate is no quota: it is one of producer_byte_rate"),
        (("set", "producer_byte_rate=x", "--user", "a"), "is no KEY=VALUE with a number"),
        (("set", "producer_byte_rate", "--user", "a"), "is no KEY=VALUE with a number"),
        (("set", "producer_byte_rate=0", "--user", "a"), "must be greater than 0"),
        (("set", "producer_byte_rate=1", "--user", ""), "--user is empty: --each-user is for"),
        (("set", "producer_byte_rate=1", "--user", "a", "--each-user"), "exclude each other"),
        (("remove", "--user", "a"), "user a has no quota"),
        (("remove", "request_percentage", "--user", "a"), "user a has no quota request_percentage"),
    ],
)
def test_what_cannot_be_is_one_line(
    oncelog: Oncelog, arguments: tuple[str, ...], text: str
) -> None:
    result = oncelog("quotas", *arguments)
    assert result.exit_code == 1
    assert text in result.stderr
    assert "Traceback" not in result.stderr
