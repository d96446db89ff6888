"""What a secure embedded broker and a secure embedded cluster have in common: their users."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from oncelog.controller.decision import ControllerEvent
from oncelog.controller.events import CreateAcls, DeleteAcls
from oncelog.core.acl import (
    ANY_ACL,
    CLUSTER_NAME,
    WILDCARD,
    Acl,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)

if TYPE_CHECKING:
    from oncelog.broker.embedded_security import EmbeddedSecurity

__all__ = ["EmbeddedUsers", "NamedResources", "acls_of", "new_security"]

ReplyT = TypeVar("ReplyT")


class NamedResources(NamedTuple):
    """What ACLs are about; without any name it is everything. ``orders*`` is a prefix."""

    topic: str | None = None
    group: str | None = None
    transactional_id: str | None = None


def acls_of(
    principal: str, operations: str, permission: AclPermission, resources: NamedResources
) -> tuple[Acl, ...]:
    """Return ACLs about resources. Raises `ValueError` for an operation that does not exist."""
    kinds = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
    named = {kind: name for kind, name in zip(kinds, resources, strict=True) if name is not None}
    if not named:
        named = {**dict.fromkeys(kinds, WILDCARD), ResourceType.CLUSTER: CLUSTER_NAME}
    return tuple(
        _acl(kind, name, principal, _operation(operation), permission)
        for kind, name in named.items()
        for operation in operations.split(",")
    )


def _operation(text: str) -> AclOperation:
    name = text.strip().upper().replace("-", "_")
    found = AclOperation.__members__.get(name, AclOperation.UNKNOWN)
    if found <= AclOperation.ANY:
        known = (each.name.lower() for each in AclOperation if each > AclOperation.ANY)
        raise ValueError(f"the operation {text!r} is none of {', '.join(known)}")
    return found


def _acl(
    kind: ResourceType,
    name: str,
    principal: str,
    operation: AclOperation,
    permission: AclPermission,
) -> Acl:
    pattern = PatternType.LITERAL
    if name.endswith(WILDCARD) and name != WILDCARD:
        name, pattern = name.removesuffix(WILDCARD), PatternType.PREFIXED
    return Acl(kind, name, pattern, principal, WILDCARD, operation, permission)


class EmbeddedUsers:
    """The users, and what they may do. Each method raises `RuntimeError` without ``secure=True``.

    They are called while the broker or cluster runs.
    """

    _security: EmbeddedSecurity | None

    @property
    def bootstrap_servers(self) -> str:
        """Where clients connect."""
        raise NotImplementedError

    def client_config(self, user: str, *, for_: str) -> dict[str, Any]:
        """Return the settings with which a client gets in, as they are.

        `user` is admin, app or reader. `for_` is confluent, aiokafka, kafka-python, java, spark
        (options of a source) or oncelog (arguments of `Producer`, `Consumer` and `Admin`). Raises
        `ValueError` for others.
        """
        return self._users.client_config(self.bootstrap_servers, user, for_)

    def allow(
        self,
        user: str,
        operations: str,
        *,
        topic: str | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
    ) -> None:
        """Allow a user operations ("write", "read,describe", "all") on what is named.

        A name that ends in * is a prefix; without a name it is everything. What has its first ACL
        is closed to all others but admin. In force on every broker when this returns. Raises
        `ValueError` for an operation that does not exist.
        """
        self._add(user, operations, AclPermission.ALLOW, topic, group, transactional_id)

    def deny(
        self,
        user: str,
        operations: str,
        *,
        topic: str | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
    ) -> None:
        """Deny a user operations, whatever allows them; see `allow`."""
        self._add(user, operations, AclPermission.DENY, topic, group, transactional_id)

    def clear_acls(self) -> None:
        """Take back all that `allow` and `deny` have set, and other ACLs."""
        _ = self._users  # There have to be some.
        self._submit(DeleteAcls((ANY_ACL,)))

    def _add(
        self,
        user: str,
        operations: str,
        permission: AclPermission,
        topic: str | None,
        group: str | None,
        transactional_id: str | None,
    ) -> None:
        _ = self._users  # There have to be some.
        named = NamedResources(topic, group, transactional_id)
        acls = acls_of(f"User:{user}", operations, permission, named)
        for outcome in self._submit(CreateAcls(acls)):
            if outcome.error:
                raise ValueError(f"the ACL cannot be set: {outcome.message}")

    @property
    def _users(self) -> EmbeddedSecurity:
        if self._security is None:
            raise RuntimeError("it has no users: make it with secure=True")
        return self._security

    def _submit(self, event: ControllerEvent[ReplyT]) -> ReplyT:
        """Have the controller decide on an event; return its reply once that is applied."""
        raise NotImplementedError


def new_security() -> EmbeddedSecurity:
    """Return the users of a new broker or cluster. Raises `ExtraMissing` without cryptography."""
    # Imported here because most brokers are not secure.
    from oncelog.runtime.installation import require_extra

    require_extra("secure=True", "secure", ["cryptography"])
    from oncelog.broker.embedded_security import EmbeddedSecurity

    return EmbeddedSecurity()
