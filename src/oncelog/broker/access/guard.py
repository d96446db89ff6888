"""Puts the question whether its client may before each request of a broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from oncelog.broker.access.asked import Asked
from oncelog.broker.access.audit import AuditLog
from oncelog.broker.apis import HANDLERS
from oncelog.broker.apis.needs import Nothing, Whole
from oncelog.broker.net.decisions import DecisionCounts
from oncelog.broker.net.dispatch import Find
from oncelog.broker.net.request import Api, Request
from oncelog.core.acl import CLUSTER_NAME, Acl, AuthorizerConfig, ResourceType
from oncelog.protocol.api import ApiKey
from oncelog.runtime.clock import Clock
from oncelog.security.authorizer import AclRules

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["Guard"]

Check = Callable[[Asked[Any]], object]
"""Asks for what a request needs, and has it served, in parts, or refused."""


class Guard:
    """Puts something around the handlers of a broker: each asks before it serves.

    `acls` returns the ACLs in force by id: while it is the same object they are unchanged. Else new
    rules are made, and what was decided by the old ones is forgotten with them.
    """

    def __init__(
        self,
        clock: Clock,
        acls: Callable[[], Mapping[str, Acl]],
        settings: AuthorizerConfig,
        counts: DecisionCounts | None = None,
    ) -> None:
        self._audit = AuditLog(clock, counts)
        self._acls = acls
        self._settings = settings
        self._known: Mapping[str, Acl] | None = None
        self._rules = AclRules()

    def asking(self, find: Find) -> Find:
        """Return what finds handlers that ask (`Layer.ACCESS`)."""

        @cache
        def asked(key: ApiKey) -> Api | None:
            api = find(key)
            check = None if api is None else check_of(key)
            if api is None or check is None:
                return api
            return api._replace(handle=partial(self._handle, check, api))

        return asked

    def _handle(self, check: Check, api: Api, context: Context, request: Request[Any]) -> object:
        acls = self._acls()
        if acls is not self._known:
            self._known = acls
            super_users, allow_everyone = self._settings
            self._rules = AclRules(acls.values(), super_users, allow_everyone=allow_everyone)
        return check(Asked(api, context, request, self._rules, self._audit))


def check_of(key: ApiKey) -> Check | None:
    """Return what asks for the needs of an API; None if it needs nothing."""
    needs = HANDLERS[key].needs
    if isinstance(needs, Nothing):
        return None
    if isinstance(needs, Whole):
        return partial(_whole, needs)
    module = import_module(f"oncelog.broker.access.{needs.module}")
    check: Check = getattr(module, key.schema_name)
    return check


def _whole(needs: Whole, asked: Asked[Any]) -> object:
    name = CLUSTER_NAME
    if needs.need.resource_type is not ResourceType.CLUSTER:
        name = getattr(asked.body, needs.field)
    return asked.serve() if asked.may(needs.need, name) else asked.refuse(needs.need)
