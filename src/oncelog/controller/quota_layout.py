"""Defines the paths and values of client quotas in the metadata store; see `layout`.

``/oncelog/client-quotas/user=<user>,client-id=<client id>``: the value of each key of an entity's
quota. A part that the entity has not is left out; one without a name is the default. Names are
percent-encoded, for they may hold anything.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, unquote

from oncelog.core.quotas import CLIENT_ID, USER, ClientQuotaEntity

__all__ = ["QUOTAS_PREFIX", "decode_quotas", "encode_quotas", "entity_of", "quota_path"]

QUOTAS_PREFIX: Final = "/oncelog/client-quotas/"


def quota_path(entity: ClientQuotaEntity) -> str:
    """Return the path of an entity's quotas."""
    return QUOTAS_PREFIX + ",".join(
        f"{kind}={quote(name, safe='')}" for kind, name in entity.parts.items()
    )


def entity_of(path: str) -> ClientQuotaEntity:
    """Return the entity whose quotas are at `path`. Raises as `oncelog.controller.layout`."""
    parts = dict(part.split("=") for part in path.removeprefix(QUOTAS_PREFIX).split(","))
    found = {kind: unquote(name) for kind, name in parts.items()}
    if not found.keys() <= {USER, CLIENT_ID}:
        raise ValueError(f"{path} names no user and no client id")
    return ClientQuotaEntity(found.get(USER), found.get(CLIENT_ID))


def encode_quotas(quotas: Mapping[str, float]) -> bytes:
    """Encode the values of an entity's quotas by key."""
    return json.dumps(dict(quotas), separators=(",", ":"), sort_keys=True).encode()


def decode_quotas(value: bytes) -> dict[str, float]:
    """Decode the values of an entity's quotas. Raises as `oncelog.controller.layout`."""
    found: dict[str, float] = json.loads(value)
    return {str(key): float(number) for key, number in found.items()}
