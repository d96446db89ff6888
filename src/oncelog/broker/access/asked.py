"""One request of which the broker asks whether its client may."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from oncelog.broker.access.audit import AuditLog, Subject
from oncelog.broker.apis.needs import Need
from oncelog.broker.apis.refusals import refusal, refused_parts
from oncelog.broker.net.request import Api, Request
from oncelog.core.acl import CLUSTER_NAME, ResourceType
from oncelog.core.errors import ErrorCode
from oncelog.core.pending import Pending, after
from oncelog.protocol import codec
from oncelog.security.authorizer import AclRules

if TYPE_CHECKING:
    from uuid import UUID

    from oncelog.broker.apis.context import Context

__all__ = ["Asked", "AskedParts", "by_name"]

Body = TypeVar("Body")
Label = Any
"""What a part of a request and its part of the response have in common."""


class AskedParts(NamedTuple):
    """Where a request lists its parts, and where the response answers them."""

    asked: str
    """The request's field."""
    answered: str
    """The response's field."""
    label: Callable[[Any], Label]
    """Returns a part's label."""
    answered_label: Callable[[Any], Label] | None = None
    """The same for the response's part, where it differs."""


class Asked(Generic[Body]):
    """A request, who sends it, and what that one may do: as it was when the request started."""

    __slots__ = (
        "_api",
        "_audit",
        "_decisions",
        "_rules",
        "_subject",
        "_tells_allowed",
        "context",
        "request",
    )

    def __init__(
        self,
        api: Api,
        context: Context,
        request: Request[Body],
        rules: AclRules,
        audit: AuditLog,
    ) -> None:
        connection = request.connection
        self.context = context
        self.request = request
        self._api = api
        self._rules = rules
        self._audit = audit
        self._subject = Subject(f"User:{connection.principal}", connection.peer_host, api.key)
        self._decisions = rules.decisions_of(self._subject.principal, self._subject.host)
        self._tells_allowed = audit.tells_allowed

    @property
    def body(self) -> Body:
        """The request."""
        return self.request.body

    # ---- what the client may do ----

    def may(
        self, need: Need, name: str = CLUSTER_NAME, count: int = 1, *, is_filter: bool = False
    ) -> bool:
        """Whether the client may do that to a resource, which the request names `count` times.

        With `is_filter` a refusal is no attempt to get in, and is not written to the audit log.
        """
        allowed = self._decisions[need.operation, need.resource_type, name]
        if allowed:
            self._audit.counts.allowed += 1
            if self._tells_allowed:
                self._audit.tell(self._rules, self._subject, need, name, count, allowed=True)
        else:
            self._audit.counts.denied += 1
            if not is_filter:
                self._audit.tell(self._rules, self._subject, need, name, count, allowed=False)
        return allowed

    def may_any(self, need: Need) -> bool:
        """Whether the client may do that to any resource of the type, there or to come."""
        return self._decisions[need.operation, need.resource_type, None]

    def denied(
        self, need: Need, names: Iterable[str], *, is_filter: bool = False
    ) -> frozenset[str]:
        """Return the names to which the client may not do that."""
        counts = Counter(names)
        return frozenset(
            name
            for name, count in counts.items()
            if not self.may(need, name, count, is_filter=is_filter)
        )

    def operations_on(self, resource_type: ResourceType, name: str = CLUSTER_NAME) -> int:
        """Return the field *authorized operations* (KIP-430) of a resource."""
        principal, host, _ = self._subject
        return self._rules.authorized_operations(principal, host, resource_type, name)

    # ---- what becomes of the request ----

    def refuse(self, need: Need) -> object:
        """Return the response to a request whose client may not."""
        return refusal(self.request, need.error, self.lacks(need))

    def lacks(self, need: Need) -> str:
        """Say what is missing, for people."""
        return f"{self._subject.principal} needs {need}"

    def serve(self, merge: Callable[[Any], Any] | None = None, *more: object) -> object:
        """Have the handler serve the request, with `more` arguments; `merge` gets its response."""
        value = self._api.handle(self.context, self.request, *more)
        return value if merge is None else _merged(value, merge)

    def serve_but(
        self,
        parts: AskedParts,
        refused: Mapping[Label, ErrorCode],
        merge: Callable[[Any], Any] | None = None,
        *,
        always: bool = False,
        message: str | None = None,
    ) -> object:
        """Refuse the parts with these labels, and have the others served.

        The handler gets the request without them, and not at all if nothing is left, unless
        `always`. `merge` gets its response; the refused parts are added after it.
        """
        if not refused:
            return self.serve(merge)
        asked: tuple[Any, ...] = getattr(self.body, parts.asked)
        told: list[Any] = []
        for error in dict.fromkeys(refused.values()):
            some = tuple(each for each in asked if refused.get(parts.label(each)) is error)
            body = replace(self.body, **{parts.asked: some})  # type: ignore[type-var]
            told += refused_parts(self.request, body, error, message)
        places = {parts.label(each): place for place, each in reversed([*enumerate(asked)])}
        label = parts.answered_label or parts.label

        def whole(response: Any) -> Any:
            served = response if merge is None else merge(response)
            if getattr(served, "error_code", ErrorCode.none) is not ErrorCode.none:
                return served
            answers = [*getattr(served, parts.answered), *told]
            answers.sort(key=lambda each: places.get(label(each), len(places)))
            return replace(served, **{parts.answered: tuple(answers)})

        kept = tuple(each for each in asked if parts.label(each) not in refused)
        if not kept and not always:
            return whole(codec.response_class(self.request.api)())
        self.request.body = replace(self.body, **{parts.asked: kept})  # type: ignore[type-var]
        return self.serve(whole)

    def name_of(self, topic: Any) -> str | None:
        """Return the name of a topic that a request names by name or id; None: no such id."""
        name: str | None = topic.name
        topic_id: UUID | None = topic.topic_id
        if name is not None:
            return name
        found = self.context.image.topic_by_id(topic_id)
        return None if found is None else found.name


by_name: Final = AskedParts("topics", "topics", lambda topic: topic.name)
"""Topics that are named."""


def _merged(value: object, merge: Callable[[Any], Any]) -> object:
    """Return what a handler does, with its response merged."""
    if isinstance(value, Pending):
        first = value
        return after(first, lambda: _merged(first.response(), merge))
    if isinstance(value, Awaitable):
        return _merged_later(value, merge)
    return merge(value)


async def _merged_later(value: Awaitable[object], merge: Callable[[Any], Any]) -> object:
    return _merged(await value, merge)
