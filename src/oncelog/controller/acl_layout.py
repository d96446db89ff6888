"""Defines the paths and values of ACLs in the metadata store; see `layout`.

- ``/oncelog/acls/<id>``: one ACL, in Kafka's names. The id follows from the ACL: to set one that is
  there changes nothing, and no two writers disturb each other.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Final, TypedDict

from oncelog.core.acl import (
    Acl,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
    problem_of_acl,
)

__all__ = ["ACLS_PREFIX", "acl_id", "acl_path", "decode_acl", "encode_acl"]

ACLS_PREFIX: Final = "/oncelog/acls/"

_ID_LENGTH: Final = 32


class _StoredAcl(TypedDict):
    host: str
    name: str
    operation: str
    pattern_type: str
    permission: str
    principal: str
    resource_type: str


def acl_id(acl: Acl) -> str:
    """Return the id of an ACL."""
    return sha256(encode_acl(acl)).hexdigest()[:_ID_LENGTH]


def acl_path(found_id: str) -> str:
    """Return the path of the ACL of an id."""
    return ACLS_PREFIX + found_id


def encode_acl(acl: Acl) -> bytes:
    """Encode an ACL."""
    value: _StoredAcl = {
        "host": acl.host,
        "name": acl.name,
        "operation": acl.operation.name,
        "pattern_type": acl.pattern_type.name,
        "permission": acl.permission.name,
        "principal": acl.principal,
        "resource_type": acl.resource_type.name,
    }
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def decode_acl(path: str, value: bytes) -> Acl:
    """Decode the ACL at a path. Raises as `oncelog.controller.layout`.

    One of a kind that this version does not know is refused: passed over, it would deny nothing.
    """
    found: _StoredAcl = json.loads(value)
    acl = Acl(
        ResourceType[found["resource_type"]],
        found["name"],
        PatternType[found["pattern_type"]],
        found["principal"],
        found["host"],
        AclOperation[found["operation"]],
        AclPermission[found["permission"]],
    )
    problem = problem_of_acl(acl)
    if problem is not None:
        raise ValueError(problem)
    if path != acl_path(acl_id(acl)):
        raise ValueError("it is not the ACL of this path")
    return acl
