"""Client quotas as values: whom one is for, and which keys it may have (KIP-13, KIP-546). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from oncelog.core.values import value

__all__ = [
    "CLIENT_ID",
    "CONSUMER_BYTE_RATE",
    "CONTROLLER_MUTATION_RATE",
    "DEFAULT",
    "IP",
    "PRODUCER_BYTE_RATE",
    "QUOTA_KEYS",
    "REQUEST_PERCENTAGE",
    "USER",
    "ClientQuotaEntity",
    "ClientQuotas",
]

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"

QUOTA_KEYS: Final[Mapping[str, bool]] = {
    PRODUCER_BYTE_RATE: True,
    CONSUMER_BYTE_RATE: True,
    REQUEST_PERCENTAGE: False,
    CONTROLLER_MUTATION_RATE: False,
}
"""The keys of a user's and a client's quota, and whether the value has to be a whole number.

Bytes a second, the same, percent of one core, and partitions a second that are created or deleted.
"""

DEFAULT: Final = ""
"""In the place of a name: all who have no quota by their names. No name is empty."""


@value
class ClientQuotaEntity:
    """Whom a quota is for. None: it does not ask for a user, or for a client id."""

    user: str | None = None
    client_id: str | None = None

    @property
    def parts(self) -> dict[str, str]:
        """The types that it asks for, each with its name."""
        asked = ((USER, self.user), (CLIENT_ID, self.client_id))
        return {kind: name for kind, name in asked if name is not None}

    def __str__(self) -> str:
        return ", ".join(f"{kind} {name or '<default>'}" for kind, name in self.parts.items())


ClientQuotas: TypeAlias = Mapping[ClientQuotaEntity, Mapping[str, float]]
"""All quotas: by entity the value of each key."""
