"""Defines the paths and values of SCRAM credentials in the metadata store; see `layout`.

- ``/oncelog/scram-credentials/<user>``: a user's credentials by mechanism; the name is
  percent-encoded, for it may hold anything.
- ``/oncelog/scram-secret``: what the salts of users that do not exist follow from.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Final, TypedDict
from urllib.parse import quote, unquote

from oncelog.core.sasl import ScramCredential
from oncelog.core.secret import Secret

__all__ = [
    "SCRAM_PREFIX",
    "SCRAM_SECRET_PATH",
    "decode_scram_credentials",
    "decode_secret",
    "encode_scram_credentials",
    "encode_secret",
    "scram_path",
    "user_of",
]

SCRAM_PREFIX: Final = "/oncelog/scram-credentials/"
SCRAM_SECRET_PATH: Final = "/oncelog/scram-secret"


def scram_path(user: str) -> str:
    """Return the path of a user's SCRAM credentials."""
    # A store may have folders, in which "." and ".." are no names.
    return SCRAM_PREFIX + quote(user, safe="").replace(".", "%2E")


def user_of(path: str) -> str:
    """Return the user whose SCRAM credentials are at `path`."""
    return unquote(path.removeprefix(SCRAM_PREFIX))


class _Scram(TypedDict):
    iterations: int
    salt: str
    server_key: str
    stored_key: str


def encode_scram_credentials(credentials: Mapping[str, ScramCredential]) -> bytes:
    """Encode a user's credentials by mechanism."""
    value: dict[str, _Scram] = {
        mechanism: {
            "iterations": one.iterations,
            "salt": b64encode(one.salt).decode(),
            "server_key": b64encode(one.server_key).decode(),
            "stored_key": b64encode(one.stored_key).decode(),
        }
        for mechanism, one in credentials.items()
    }
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def decode_scram_credentials(value: bytes) -> dict[str, ScramCredential]:
    """Decode a user's credentials by mechanism. Raises as `oncelog.controller.layout`."""
    found: dict[str, _Scram] = json.loads(value)
    return {
        mechanism: ScramCredential(
            b64decode(one["salt"], validate=True),
            b64decode(one["stored_key"], validate=True),
            b64decode(one["server_key"], validate=True),
            int(one["iterations"]),
        )
        for mechanism, one in found.items()
    }


def encode_secret(secret: Secret) -> bytes:
    """Encode the secret that decoys follow from."""
    return secret.value.encode()


def decode_secret(value: bytes | None) -> Secret | None:
    """Decode that secret; None where there is none."""
    return None if value is None else Secret(value.decode())
