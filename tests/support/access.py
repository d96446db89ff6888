"""A broker with an authorizer, whose rules tests change, and the settings of its user `app`.

Clients reach it by two listeners: on the plain one everybody may do everything (the user ANONYMOUS
is a super user), on the other they log in.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, Final

from oncelog.core.acl import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from oncelog.core.config_keys import STANDARD_AUTHORIZER
from oncelog.sync import Admin
from oncelog.testing import ControlledBroker

__all__ = ["CONFIG", "USER", "RuledBroker", "right", "ruled_broker"]

USER, PASSWORD = "app", "app-geheim"
_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
CONFIG: Final = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl.plain.sasl.jaas.config": f'{_MODULE} required user_{USER}="{PASSWORD}";',
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:ANONYMOUS",
    "group.initial.rebalance.delay.ms": "0",
}


def right(text: str, permission: AclPermission = AclPermission.ALLOW, user: str = USER) -> Acl:
    """An ACL by its operation, type and name: ``READ TOPIC a``; the cluster has none."""
    operation, kind, *name = text.split()
    return Acl(
        ResourceType[kind],
        name[0] if name else CLUSTER_NAME,
        PatternType.LITERAL,
        f"User:{user}",
        "*",
        AclOperation[operation],
        permission,
    )


class RuledBroker:
    """A running broker, and what `app` may do there."""

    def __init__(self, broker: ControlledBroker, admin: Admin) -> None:
        self.broker = broker
        self.admin = admin
        self.numbers = count()
        """Of what tests write."""
        inner = broker._broker
        assert inner is not None
        self.address = str(inner.server.listeners[1].address)

    def allow(self, *rights: str) -> None:
        self.admin.create_acls([right(text) for text in rights])

    def revoke(self, *rights: str) -> None:
        found = self.admin.delete_acls([AclFilter(*right(text)) for text in rights])
        assert all(found)

    def client(self) -> Any:
        """Kafka's settings of a client that is `app`."""
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }

    def confluent(self, **settings: Any) -> Any:
        """The settings of a client of confluent-kafka that is `app`."""
        known = self.client() | {"bootstrap.servers": self.address}
        known["sasl.mechanisms"] = known.pop("sasl.mechanism")
        return known | {name.replace("_", "."): value for name, value in settings.items()}


@contextmanager
def ruled_broker() -> Iterator[RuledBroker]:
    """A broker in which `app` may do nothing yet."""
    with ControlledBroker(config=CONFIG) as broker, Admin(broker.bootstrap_servers) as admin:
        yield RuledBroker(broker, admin)
