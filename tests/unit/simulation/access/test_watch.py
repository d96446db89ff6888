"""A broker that serves whom it should have refused is found out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.broker.net.request import Api
from oncelog.controller.image import MetadataImage
from oncelog.core.acl import Acl, AclOperation, AclPermission, PatternType, ResourceType
from oncelog.core.errors import ErrorCode
from oncelog.core.sasl import ScramCredential
from oncelog.protocol.api import ApiKey
from oncelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from oncelog.simulation.access.ledger import AccessLedger
from oncelog.simulation.access.watch import AccessWatch, goes_by
from oncelog.simulation.users import OTHER_SALT, RIGHT_SALT, SCRAM

SERVED = "what a client has no right to is served"
REFUSED = "what a client has a right to is refused"
WRITE = Acl(
    ResourceType.TRANSACTIONAL_ID,
    "*",
    PatternType.LITERAL,
    "User:c1",
    "*",
    AclOperation.WRITE,
    AclPermission.ALLOW,
)


class Connected:
    """A connection, before its client has logged in."""

    principal = ""
    peer_host = "10.0.1.2"


class Watched:
    """A broker with one handler, whose answer tests choose, and who asks it."""

    def __init__(self, *, forgets: bool = False, session_s: float = 0.0) -> None:
        self.ledger = AccessLedger()
        self.now_s = 0.0
        self.image = MetadataImage(cluster_id="c")
        self.answer = ErrorCode.none
        self.told: list[str] = []
        watch = AccessWatch(
            self.ledger,
            (0, 0),
            {"c1"},
            lambda _: forgets,
            session_s,
            lambda: self.now_s,
            lambda what, _: self.told.append(what),
        )
        api = Api(ApiKey.END_TXN, lambda *_: EndTxnResponse(error_code=self.answer), False)
        found = watch.watched(lambda _: api)(ApiKey.END_TXN)
        assert found is not None
        self._api = found

    def know(self, item: Acl | str, *, is_there: bool = True) -> None:
        self.ledger.asked([item])
        self.ledger.answered([item], self.now_s, is_there=is_there, late=())

    def connect(self) -> Connected:
        """Open a connection, which asks once before it has logged in."""
        connection = Connected()
        self.ask(connection)
        connection.principal = "c1"
        return connection

    def ask(self, connection: Connected, at_s: float | None = None) -> list[str]:
        """Ask; return what is told."""
        self.now_s = self.now_s if at_s is None else at_s
        self.told.clear()
        body = EndTxnRequest(transactional_id="x")
        request: Any = SimpleNamespace(
            api=ApiKey.END_TXN, version=3, body=body, connection=connection
        )
        context: Any = SimpleNamespace(image=self.image)
        self._api.handle(context, request)
        return self.told


def test_what_is_served_without_a_right_and_refused_with_it_is_told() -> None:
    broker = Watched()
    client = broker.connect()
    assert broker.ask(client) == [SERVED]
    broker.know(WRITE)
    assert broker.ask(client) == []
    broker.answer = ErrorCode.transactional_id_authorization_failed
    assert broker.ask(client) == [REFUSED]
    client.principal = "root"
    assert broker.ask(client) == []


@pytest.mark.parametrize(
    ("forgets", "told"), [(True, ["a session goes on after its end"]), (False, [])]
)
def test_a_session_that_its_client_forgets_has_to_end(forgets: bool, told: list[str]) -> None:
    broker = Watched(forgets=forgets, session_s=2.0)
    broker.know(WRITE)
    client = broker.connect()
    assert broker.ask(client, 1.0) == []
    assert broker.ask(client, 3.0) == []
    assert broker.ask(client, 3.1) == ["a session goes on after its end"] * forgets


def test_a_former_password_opens_no_connection() -> None:
    broker = Watched(session_s=2.0)
    broker.know(WRITE)
    before = broker.connect()
    broker.ask(before, 1.0)
    broker.know("c1", is_there=False)
    broker.now_s = 1.5
    after = broker.connect()
    assert broker.ask(after) == ["a user is let in with a former password"]
    # A session that began before goes on to its end, and then it cannot be begun again.
    assert broker.ask(before, 2.9) == []
    assert broker.ask(before, 3.1) == ["a session goes on with a former password"]


def test_an_image_goes_by_its_acls_and_by_the_passwords_of_the_clients() -> None:
    def image(salt: bytes) -> MetadataImage:
        users = {"c1": {SCRAM: ScramCredential(salt, b"", b"", 4096)}}
        return MetadataImage(cluster_id="c", acls={"1": WRITE}, scram_credentials=users)

    assert goes_by(image(RIGHT_SALT), WRITE)
    assert not goes_by(MetadataImage(cluster_id="c"), WRITE)
    assert goes_by(image(RIGHT_SALT), "c1")
    assert not goes_by(image(OTHER_SALT), "c1")
    assert not goes_by(image(RIGHT_SALT), "c2")
