"""Handles AlterUserScramCredentials (51), version 0: sets and deletes credentials (KIP-554).

Each user's change is made or refused by itself; one that is named twice gets DUPLICATE_RESOURCE. Of
a salted password only what verifies it leaves this module, for the salted one stands for the
password. Gap: none known.
"""

from __future__ import annotations

import random
from base64 import b64encode
from typing import TYPE_CHECKING, Final

from oncelog.broker.net.request import Request
from oncelog.controller.events import AlterScramCredentials, ScramDeletion, ScramUpsertion
from oncelog.core.sasl import MECHANISM_NUMBERS, ScramKeys, keys_of
from oncelog.core.secret import Secret
from oncelog.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialUpsertion,
)

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["event_of", "handle"]

_MECHANISMS: Final = {number: name for name, number in MECHANISM_NUMBERS.items()}
_NO_KEYS: Final = ScramKeys(b"", b"", b"")


async def handle(
    context: Context, request: Request[AlterUserScramCredentialsRequest]
) -> AlterUserScramCredentialsResponse:
    """Change the credentials; return what became of each user's."""
    outcomes = await context.controller.submit(event_of(request.body, context.rng))
    return AlterUserScramCredentialsResponse(
        results=tuple(
            AlterUserScramCredentialsResult(
                user=outcome.user, error_code=outcome.error, error_message=outcome.message
            )
            for outcome in outcomes
        )
    )


def event_of(
    request: AlterUserScramCredentialsRequest, rng: random.Random
) -> AlterScramCredentials:
    """Return the event that a request asks for."""
    return AlterScramCredentials(
        tuple(ScramDeletion(one.name, one.mechanism) for one in request.deletions),
        tuple(map(_upsertion, request.upsertions)),
        Secret(rng.randbytes(32).hex()),
    )


def _upsertion(asked: ScramCredentialUpsertion) -> ScramUpsertion:
    mechanism = _MECHANISMS.get(asked.mechanism)
    salted = bytes(asked.salted_password)
    keys = keys_of(mechanism, salted) if mechanism and salted else _NO_KEYS
    return ScramUpsertion(
        asked.name,
        asked.mechanism,
        asked.iterations,
        _text(bytes(asked.salt)),
        _text(keys.stored_key),
        _text(keys.server_key),
    )


def _text(key: bytes) -> Secret:
    return Secret(b64encode(key).decode())
