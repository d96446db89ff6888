"""The administrator of a secure run: makes its users, takes rights and passwords away, gives back.

It is a super user on a machine of its own, and no fault meets it. It makes one change after the
other, each at the broker that it is asked for, and at the next one while there is no answer.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from oncelog.client.acl_admin import creation_request, deletion_request
from oncelog.core.acl import (
    CLUSTER_NAME,
    WILDCARD,
    WILDCARD_PRINCIPAL,
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from oncelog.core.errors import ErrorCode
from oncelog.core.sasl import MECHANISM_NUMBERS, salted_password
from oncelog.core.security_limits import SCRAM_ITERATIONS_MIN
from oncelog.protocol.api import ApiKey
from oncelog.protocol.fields import RequestFor
from oncelog.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from oncelog.simulation.access.ledger import AccessLedger, BrokerLife, Password
from oncelog.simulation.context import ClientContext
from oncelog.simulation.history_access import AccessAnswered, AccessAsked
from oncelog.simulation.needs import errors_of
from oncelog.simulation.peers.flavors import JAVA
from oncelog.simulation.peers.wire import LostError, PeerWire
from oncelog.simulation.users import OTHER_SALT, RIGHT_SALT, SCRAM, password_of

__all__ = ["RIGHTS", "AccessChange", "Warden", "initial_rights", "named_late", "taken"]

_PATIENT: Final = {"late": 0.0, "impatience": 0.0, "request_timeout_ms": 15_000}
"""Longer than a broker waits for the others to apply a change."""
_OPERATIONS: Final[Mapping[ResourceType, tuple[AclOperation, ...]]] = {
    ResourceType.TOPIC: (AclOperation.READ, AclOperation.WRITE),
    ResourceType.GROUP: (AclOperation.READ, AclOperation.DESCRIBE),
    ResourceType.TRANSACTIONAL_ID: (AclOperation.WRITE, AclOperation.DESCRIBE),
    ResourceType.CLUSTER: (AclOperation.IDEMPOTENT_WRITE,),
}
"""What users may do from the start, each by an ACL of its own: there is one to take away."""
RIGHTS: Final[Mapping[str, tuple[AclOperation, ResourceType]]] = {
    "write-topic": (AclOperation.WRITE, ResourceType.TOPIC),
    "read-topic": (AclOperation.READ, ResourceType.TOPIC),
    "describe-topic": (AclOperation.DESCRIBE, ResourceType.TOPIC),
    "read-group": (AclOperation.READ, ResourceType.GROUP),
    "describe-group": (AclOperation.DESCRIBE, ResourceType.GROUP),
    "write-id": (AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID),
    "describe-id": (AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID),
    "all-topics": (AclOperation.ALL, ResourceType.TOPIC),
}
"""What is taken away, by name."""
_GONE: Final = frozenset({ErrorCode.none, ErrorCode.resource_not_found})


class AccessChange(NamedTuple):
    """One change: these ACLs or users' passwords are to be there, or are not."""

    items: tuple[Acl | Password, ...]
    is_there: bool
    broker: int
    removes_user: bool = False
    """Of a password that goes: the user goes with it, instead of getting another one."""

    @property
    def text(self) -> str:
        """The change as text. It names no secret."""
        verb = "set" if self.is_there else "take away"
        return f"{verb} {'; '.join(map(_text, self.items))}"


class Warden:
    """Makes the changes of one run in order.

    `asking` is called before a change is sent; `answered` returns the brokers that may be late.
    """

    def __init__(
        self,
        context: ClientContext,
        ledger: AccessLedger,
        seed: int,
        users: Sequence[str],
        addresses: Sequence[tuple[str, int]],
        asking: Callable[[], None],
        answered: Callable[[AccessChange], Sequence[BrokerLife]],
    ) -> None:
        self._context = context.with_defaults(_PATIENT)
        self._ledger = ledger
        self._seed = seed
        self._users = users
        self._addresses = addresses
        self._asking = asking
        self._answered = answered
        self._wire = PeerWire(self._context, JAVA)
        self._waiting: deque[AccessChange] = deque()
        self._comes = asyncio.Event()
        self._is_busy = False
        self._was_set: dict[Acl | Password, bool] = {}

    @property
    def is_idle(self) -> bool:
        """Whether all changes are answered."""
        return not (self._waiting or self._is_busy)

    def submit(self, change: AccessChange) -> None:
        """Have a change made after those before it."""
        for item in change.items:
            self._was_set[item] = change.is_there
        self._waiting.append(change)
        self._comes.set()

    def begin(self, clients: Iterable[str]) -> None:
        """Have the users made, with all rights."""
        names = tuple(clients)
        self.submit(AccessChange(names, True, 0))
        self.submit(
            AccessChange(tuple(acl for name in names for acl in initial_rights(name)), True, 0)
        )

    def restore(self) -> None:
        """Have everything be as it was at the beginning."""
        initial = {acl for user in self._users for acl in initial_rights(user)} | {*self._users}
        for item, is_there in list(self._was_set.items()):
            if is_there is not (item in initial):
                self.submit(AccessChange((item,), item in initial, 0))

    async def run(self) -> None:
        """Make changes for ever: its one task."""
        while True:
            while self._waiting:
                self._is_busy = True
                await self._make(self._waiting.popleft())
                self._is_busy = False
            self._comes.clear()
            await self._comes.wait()

    async def _make(self, change: AccessChange) -> None:
        context, ledger, items = self._context, self._ledger, change.items
        index = change.broker % len(self._addresses)
        attempt = 0
        while True:
            self._asking()
            context.record(AccessAsked, change.text, index)
            ledger.asked(items)
            if await self._ask(change, self._addresses[index]):
                break
            ledger.lost(items, context.now_s())
            index = (index + 1) % len(self._addresses)
            await context.back_off(attempt)
            attempt += 1
        late = self._answered(change)
        ledger.answered(items, context.now_s(), is_there=change.is_there, late=late)
        context.record(AccessAnswered, change.text, tuple(broker for broker, _ in late))

    async def _ask(self, change: AccessChange, to: tuple[str, int]) -> bool:
        """Send a change; return whether it is made."""
        acls = [item for item in change.items if isinstance(item, Acl)]
        users = [item for item in change.items if not isinstance(item, Acl)]
        request: RequestFor[Any]
        if users:
            api, request = ApiKey.ALTER_USER_SCRAM_CREDENTIALS, self._passwords(users, change)
        elif change.is_there:
            api, request = ApiKey.CREATE_ACLS, creation_request(acls)
        else:
            api, request = ApiKey.DELETE_ACLS, deletion_request(AclFilter(*acl) for acl in acls)
        try:
            told = set(errors_of(await self._wire.ask(api, request, to=to)))
        except LostError:
            return False
        return told <= (_GONE if change.removes_user else {ErrorCode.none})

    def _passwords(
        self, users: Sequence[str], change: AccessChange
    ) -> AlterUserScramCredentialsRequest:
        mechanism = MECHANISM_NUMBERS[SCRAM]
        if change.removes_user:
            gone = tuple(ScramCredentialDeletion(name=user, mechanism=mechanism) for user in users)
            return AlterUserScramCredentialsRequest(deletions=gone)
        salt = RIGHT_SALT if change.is_there else OTHER_SALT
        ending = "" if change.is_there else "x"
        return AlterUserScramCredentialsRequest(
            upsertions=tuple(
                ScramCredentialUpsertion(
                    name=user,
                    mechanism=mechanism,
                    iterations=SCRAM_ITERATIONS_MIN,
                    salt=salt,
                    salted_password=salted_password(
                        SCRAM, password_of(self._seed, user) + ending, salt, SCRAM_ITERATIONS_MIN
                    ),
                )
                for user in users
            )
        )


def initial_rights(user: str) -> list[Acl]:
    """Return the ACLs that a user has from the start."""
    return [
        Acl(
            kind,
            CLUSTER_NAME if kind is ResourceType.CLUSTER else WILDCARD,
            PatternType.LITERAL,
            f"User:{user}",
            WILDCARD,
            operation,
            AclPermission.ALLOW,
        )
        for kind, operations in _OPERATIONS.items()
        for operation in operations
    ]


def taken(user: str, right: str, form: str, name: str, host: str) -> tuple[tuple[Acl, ...], bool]:
    """Return by which ACLs a right goes, and whether they have to be there for that.

    Forms: "delete" what allows it; deny it to the "user", at its "host", or to "everyone"; of one
    "name", or of names that begin as it does ("prefix").
    """
    operation, kind = RIGHTS[right]
    if form == "delete":
        gone = [
            acl
            for acl in initial_rights(user)
            if acl.resource_type is kind and operation in (acl.operation, AclOperation.ALL)
        ]
        if gone:
            return tuple(gone), False
    is_named = form in ("name", "prefix")
    return (
        Acl(
            kind,
            name[: 1 + len(name) // 2] if form == "prefix" else name if is_named else WILDCARD,
            PatternType.PREFIXED if form == "prefix" else PatternType.LITERAL,
            WILDCARD_PRINCIPAL if form == "everyone" else f"User:{user}",
            host if form == "host" else WILDCARD,
            operation,
            AclPermission.DENY,
        ),
    ), True


_BEHIND: Final = re.compile(r"brokers \[([0-9, ]+)\] have not said")


def named_late(message: str) -> set[int]:
    """Return the brokers that a line of the log says have not applied a change."""
    found = _BEHIND.search(message)
    return set() if found is None else {int(each) for each in found[1].split(",")}


def _text(item: Acl | Password) -> str:
    if not isinstance(item, Acl):
        return f"the password of {item}"
    where = "" if item.host == WILDCARD else f" from {item.host}"
    return (
        f"{item.permission.name} {item.principal} {item.operation.name} on "
        f"{item.resource_type.name} {item.pattern_type.name} {item.name}{where}"
    )
