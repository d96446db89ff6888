"""Compares what a broker answers to clients with what the ledger says that they may.

The handlers are wrapped where the dispatcher finds them, outside of all that asks for rights, so
the product has no hook. What a client may is what it may when its request starts. Requests of super
users are not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from functools import cache, partial
from typing import Any, Final
from uuid import UUID

from oncelog.broker.apis.context import Context
from oncelog.broker.net.dispatch import Find
from oncelog.broker.net.request import Api, Request
from oncelog.controller.image import MetadataImage
from oncelog.core.acl import Acl
from oncelog.protocol.api import ApiKey
from oncelog.protocol.fetch import parse_fetch_response
from oncelog.protocol.headers import parse_response_header
from oncelog.protocol.produce import parse_produce_request, parse_produce_response
from oncelog.simulation.access.ledger import AccessLedger, Asking, BrokerLife, Password
from oncelog.simulation.naming import looked_at
from oncelog.simulation.needs import JUDGED, judge
from oncelog.simulation.users import RIGHT_SALT, SCRAM

__all__ = ["AccessWatch", "goes_by"]

DRIFT: Final = 1.001
"""How much slower than virtual time a broker's clock may be."""

Tell = Callable[[str, str], None]


class AccessWatch:
    """Looks at the requests of one life of a broker. `tell` gets what is wrong, and particulars."""

    def __init__(
        self,
        ledger: AccessLedger,
        life: BrokerLife,
        ruled: Container[str],
        forgets: Callable[[str], bool],
        session_s: float,
        now_s: Callable[[], float],
        tell: Tell,
    ) -> None:
        self._ledger = ledger
        self._life = life
        self._ruled = ruled
        self._forgets = forgets
        self._session_s = session_s
        self._now_s = now_s
        self._tell = tell
        self._opened_s: dict[object, float] = {}
        """When each connection sent its first request: before it authenticated."""
        self._logged_in_s: dict[object, float] = {}
        """When it sent the first one as its user."""

    def watched(self, find: Find) -> Find:
        """Return what finds handlers whose requests and answers are looked at."""

        @cache
        def find_watched(key: ApiKey) -> Api | None:
            api = find(key)
            return None if api is None else api._replace(handle=partial(self._handle, api))

        return find_watched

    def _handle(self, api: Api, context: Context, request: Request[Any]) -> object:
        connection, now_s = request.connection, self._now_s()
        opened_s = self._opened_s.setdefault(connection, now_s)
        user = connection.principal
        if user not in self._ruled:
            return api.handle(context, request)
        if self._ledger.is_late(self._life):
            self._ledger.caught_up(self._life, partial(goes_by, context.image))
        self._look_at_session(user, opened_s, self._logged_in_s.setdefault(connection, now_s))
        key, version = request.api, request.version
        if key not in JUDGED:
            return api.handle(context, request)
        body, image = _body(key, version, request.body), context.image
        may = self._ledger.rights(Asking(user, connection.peer_host, self._life)).may

        def look(answer: object) -> None:
            response = _response(key, version, answer)
            if response is not None:
                for what, text in judge(key, body, response, may, partial(_name_of, image)):
                    self._tell(what, f"{text}, asked by {user} at {now_s:.6f} s")

        return looked_at(api.handle(context, request), look)

    def _look_at_session(self, user: str, opened_s: float, logged_in_s: float) -> None:
        now_s, lasts_s = self._now_s(), self._session_s * DRIFT
        if self._session_s and self._forgets(user) and now_s - logged_in_s > lasts_s:
            self._tell("a session goes on after its end", f"{user}, since {logged_in_s:.3f} s")
        wrong_s = self._ledger.wrong_since(user, self._life)
        if wrong_s is None:
            return
        if opened_s > wrong_s:
            text = f"{user} was let in at {logged_in_s:.3f} s, its password is another since"
            self._tell("a user is let in with a former password", f"{text} {wrong_s:.3f} s")
        elif self._session_s and now_s - wrong_s > lasts_s:
            self._tell("a session goes on with a former password", f"{user}, since {wrong_s:.3f} s")


def goes_by(image: MetadataImage, item: Acl | Password) -> bool:
    """Whether an ACL is among those of an image; of a password, whether it is its user's."""
    if isinstance(item, Acl):
        return item in image.acls.values()
    stored = image.scram_credentials.get(item, {}).get(SCRAM)
    return stored is not None and stored.salt == RIGHT_SALT


def _name_of(image: MetadataImage, topic_id: UUID) -> str | None:
    found = image.topic_by_id(topic_id)
    return None if found is None else found.name


def _body(key: ApiKey, version: int, body: Any) -> Any:
    """Return a request. Rights are asked for while it is served, which may take parts away."""
    return parse_produce_request(body, version) if key is ApiKey.PRODUCE else body


def _response(key: ApiKey, version: int, answer: Any) -> Any:
    """Return a response, parsed where its handler has encoded it; None: there is none."""
    parse = _PARSERS.get(key)
    if parse is None or answer is None:
        return answer
    is_whole = isinstance(answer, bytes | bytearray | memoryview)
    data = bytes(answer) if is_whole else b"".join(map(bytes, answer))
    _, position = parse_response_header(key, version, data)
    return parse(data, version, position)


_PARSERS: Final[Mapping[ApiKey, Callable[[bytes, int, int], Any]]] = {
    ApiKey.PRODUCE: parse_produce_response,
    ApiKey.FETCH: parse_fetch_response,
}
