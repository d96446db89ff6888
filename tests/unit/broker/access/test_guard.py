"""The rules in force, who asks, and the lines of the audit log."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from oncelog.broker.access import Guard
from oncelog.broker.net.request import Api, Request, RequestMeter
from oncelog.core.acl import Acl, AclPermission, AuthorizerConfig
from oncelog.core.errors import ErrorCode
from oncelog.core.pending import Pending
from oncelog.core.security_limits import AUDIT_NAME_LENGTH_MAX, AUDIT_REFUSALS_PER_S_MAX
from oncelog.protocol import codec
from oncelog.protocol.api import ApiKey
from oncelog.protocol.headers import RequestHeader
from oncelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from oncelog.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from oncelog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from oncelog.runtime.clock import SystemClock
from tests.unit.broker.access.asking import Peer, by_id, context, right, rights

REFUSED = ErrorCode.transactional_id_authorization_failed
AUDIT = "kafka.authorizer.logger"
PLAIN = AuthorizerConfig()


class HandClock(SystemClock):
    """A clock that a test moves."""

    ms = 0.0

    def monotonic_ms(self) -> float:
        return self.ms


class Stage:
    """A guard of one API, whose handler returns `value`."""

    def __init__(
        self, api: ApiKey = ApiKey.END_TXN, value: object = None, settings: AuthorizerConfig = PLAIN
    ) -> None:
        self.acls: dict[str, Acl] = {}
        self.clock = HandClock()
        self.peer = Peer()
        self.value = EndTxnResponse() if value is None else value
        plain = Api(api, lambda _context, _request: self.value, reads_bytes=False)
        guard = Guard(self.clock, lambda: self.acls, settings)
        found = guard.asking(lambda _: plain)(api)
        assert found is not None
        self.api = found

    def ask(self, body: object = None) -> Any:
        header = RequestHeader(self.api.key, 0, 1, "c", 0)
        asked = EndTxnRequest(transactional_id="t") if body is None else body
        request = Request(RequestMeter(self.api, 0), header, asked, self.peer)
        return self.api.handle(context(), request)


def test_rights_count_from_the_next_request_on_when_they_come_and_when_they_go() -> None:
    stage = Stage()
    for _ in range(2):
        assert stage.ask().error_code is REFUSED
        stage.acls = by_id(rights("WRITE TRANSACTIONAL_ID t"))
        assert stage.ask().error_code is ErrorCode.none
        assert stage.ask().error_code is ErrorCode.none
        stage.acls = by_id(
            [*stage.acls.values(), right("WRITE TRANSACTIONAL_ID t", AclPermission.DENY)]
        )
    assert stage.ask().error_code is REFUSED


def test_super_users_may_do_everything_and_others_by_default_if_so_set() -> None:
    for settings, error in (
        (AuthorizerConfig(frozenset({"User:app"})), ErrorCode.none),
        (AuthorizerConfig(frozenset({"User:root"})), REFUSED),
        (AuthorizerConfig(allow_everyone=True), ErrorCode.none),
    ):
        assert Stage(settings=settings).ask().error_code is error


def test_who_asks_is_who_the_connection_was_when_the_request_started() -> None:
    pending: Pending[Any] = Pending(lambda response: response, holds_back=True)
    stage = Stage(ApiKey.LIST_GROUPS, pending)
    stage.acls = by_id(rights("DESCRIBE GROUP g"))
    later = stage.ask(ListGroupsRequest())
    stage.peer.principal = "other"
    stage.acls = {}
    groups = tuple(ListedGroup(group_id=name) for name in ("g", "h"))
    pending.complete(ListGroupsResponse(groups=groups))
    assert later.done
    assert [group.group_id for group in later.response().groups] == ["g"]


def test_a_response_that_comes_after_another_wait_is_merged_too() -> None:
    last: Pending[Any] = Pending(lambda response: response, holds_back=True)
    first: Pending[Any] = Pending(lambda _: last, holds_back=False)
    stage = Stage(ApiKey.LIST_GROUPS, first)
    later = stage.ask(ListGroupsRequest())
    assert not later.holds_back
    first.complete(None)
    then = later.response()
    assert then.holds_back
    last.complete(ListGroupsResponse(groups=(ListedGroup(group_id="g"),)))
    assert then.response().groups == ()


def test_a_request_whose_connection_closes_is_dropped_with_its_merging() -> None:
    pending: Pending[Any] = Pending(lambda response: response, holds_back=True)
    stage = Stage(ApiKey.LIST_GROUPS, pending)
    stage.ask(ListGroupsRequest()).drop()
    assert pending.dropped


async def test_a_response_that_is_awaited_is_merged_too() -> None:
    async def work() -> object:
        return ListGroupsResponse(groups=(ListedGroup(group_id="g"),))

    stage = Stage(ApiKey.LIST_GROUPS, work())
    assert (await stage.ask(ListGroupsRequest())).groups == ()


def test_a_refusal_is_one_line_as_kafkas(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, AUDIT)
    topics = ("a", "a", "b")
    asked = ListOffsetsRequest(
        topics=tuple(
            ListOffsetsTopic(name=name, partitions=(ListOffsetsPartition(),)) for name in topics
        )
    )
    stage = Stage(ApiKey.LIST_OFFSETS)
    stage.value = codec.response_class(ApiKey.LIST_OFFSETS)()
    stage.acls = by_id(rights("READ TOPIC b"))
    stage.ask(asked)
    assert [record.getMessage() for record in caplog.records] == [
        "Principal = User:app is Denied operation = DESCRIBE from host = 10.0.0.1 on resource ="
        " Topic:LITERAL:a for request = ListOffsets with resourceRefCount = 2"
        " based on rule DefaultDeny"
    ]


def test_what_is_allowed_is_told_at_level_debug(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, AUDIT)
    stage = Stage()
    stage.acls = by_id(rights("WRITE TRANSACTIONAL_ID t"))
    stage.ask()
    (record,) = caplog.records
    assert record.levelno == logging.DEBUG
    said = record.getMessage()
    assert said.startswith("Principal = User:app is Allowed operation = WRITE from host = 10.0.0.1")
    assert "TransactionalId:LITERAL:t for request = EndTxn" in said
    assert "MatchingAcl(acl=StandardAcl[resourceType=TRANSACTIONAL_ID" in said


def test_what_only_filters_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, AUDIT)
    served = ListGroupsResponse(groups=(ListedGroup(group_id="g"),))
    assert Stage(ApiKey.LIST_GROUPS, served).ask(ListGroupsRequest()).groups == ()
    assert not caplog.records


def test_a_flood_of_refusals_is_counted_instead_of_written(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, AUDIT)
    stage = Stage()
    for _ in range(AUDIT_REFUSALS_PER_S_MAX + 7):
        assert stage.ask().error_code is REFUSED
    assert len(caplog.records) == AUDIT_REFUSALS_PER_S_MAX
    stage.clock.ms = 1500.0
    stage.ask()
    said = [record.getMessage() for record in caplog.records[AUDIT_REFUSALS_PER_S_MAX:]]
    assert said[0] == "7 more refusals in one second are not written"
    assert len(said) == 2


@pytest.mark.parametrize("name", ["x\n Principal = User:root is Allowed", "\x1b[2J", "y" * 9000])
def test_a_name_can_neither_forge_a_line_nor_fill_the_log(
    caplog: pytest.LogCaptureFixture, name: str
) -> None:
    caplog.set_level(logging.INFO, AUDIT)
    Stage().ask(EndTxnRequest(transactional_id=name))
    (record,) = caplog.records
    assert record.getMessage().isprintable()
    assert len(record.getMessage()) < AUDIT_NAME_LENGTH_MAX + 300
