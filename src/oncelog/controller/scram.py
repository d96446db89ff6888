"""Decides changes of the SCRAM credentials of users (KIP-554).

The rules and errors are those of Kafka's `ScramControlManager`: a request may change each user
once, and each user's change is made or refused by itself.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from typing import Final

from oncelog.controller import scram_layout
from oncelog.controller.decision import (
    ControllerDecision,
    ControllerNotice,
    DecisionContext,
    Put,
)
from oncelog.controller.events import (
    AlterScramCredentials,
    ScramDeletion,
    ScramOutcome,
    ScramUpsertion,
)
from oncelog.controller.image import MetadataImage
from oncelog.core.errors import ErrorCode
from oncelog.core.sasl import MECHANISM_NUMBERS, ScramCredential
from oncelog.core.secret import Secret, reveal
from oncelog.core.security_limits import (
    SCRAM_ITERATIONS_MIN,
    SCRAM_SALT_BYTES_MAX,
    SCRAM_STORED_ITERATIONS_MAX,
    USER_NAME_LENGTH_MAX,
)

__all__ = ["alter_scram_credentials"]

_MECHANISMS: Final[Mapping[int, str]] = {number: name for name, number in MECHANISM_NUMBERS.items()}
_NAMELESS: Final = "Username must not be empty"
_TWICE: Final = "A user credential cannot be altered twice in the same request"
_UNKNOWN: Final = "Attempt to delete a user credential that does not exist"


def alter_scram_credentials(
    image: MetadataImage, event: AlterScramCredentials, context: DecisionContext
) -> ControllerDecision[tuple[ScramOutcome, ...]]:
    """Change what can be changed; with the first credential comes the secret of decoys."""
    outcomes: dict[str, ScramOutcome] = {}
    changes: dict[str, ScramDeletion | ScramUpsertion] = {}
    asked: list[ScramDeletion | ScramUpsertion] = [*event.deletions, *event.upsertions]
    for change in asked:
        user = change.user
        before = outcomes.get(user)
        if before is not None and before.error:
            continue
        outcomes[user] = _twice(user) if user in changes else _judged(image, change)
        changes[user] = change
    writes, notices = [], []
    for user, outcome in outcomes.items():
        write = None if outcome.error else _write(image, changes[user])
        if write is not None:
            writes.append(write)
            notices.append(ControllerNotice(_told(changes[user])))
    if writes and image.scram_secret is None:
        writes.append(Put(scram_layout.SCRAM_SECRET_PATH, scram_layout.encode_secret(event.secret)))
    return ControllerDecision(tuple(outcomes.values()), tuple(writes), tuple(notices))


def _twice(user: str) -> ScramOutcome:
    return ScramOutcome(user, ErrorCode.duplicate_resource, _TWICE)


def _judged(image: MetadataImage, change: ScramDeletion | ScramUpsertion) -> ScramOutcome:
    user, error = change.user, ErrorCode.unacceptable_credential
    if not user:
        return ScramOutcome(user, error, _NAMELESS)
    if len(user) > USER_NAME_LENGTH_MAX:
        return ScramOutcome(user, error, "Username is too long")
    mechanism = _MECHANISMS.get(change.mechanism)
    if mechanism is None:
        text = "Unknown SCRAM mechanism"
        return ScramOutcome(user, ErrorCode.unsupported_sasl_mechanism, text)
    if isinstance(change, ScramDeletion):
        if mechanism not in image.scram_credentials.get(user, {}):
            return ScramOutcome(user, ErrorCode.resource_not_found, _UNKNOWN)
        return ScramOutcome(user)
    problem = next(_problems(change), None)
    return ScramOutcome(user) if problem is None else ScramOutcome(user, error, problem)


def _problems(upsertion: ScramUpsertion) -> Iterator[str]:
    if upsertion.iterations < SCRAM_ITERATIONS_MIN:
        yield "Too few iterations"
    if upsertion.iterations > SCRAM_STORED_ITERATIONS_MAX:
        yield "Too many iterations"
    keys = (upsertion.salt, upsertion.stored_key, upsertion.server_key)
    try:
        sizes = [len(_decoded(key)) for key in keys]
    except (binascii.Error, ValueError):
        yield "A key is no base64"
        return
    if 0 in sizes:
        yield "Salt and salted password must not be empty"
    if max(sizes) > SCRAM_SALT_BYTES_MAX:
        yield "The salt is too long"


def _decoded(key: Secret) -> bytes:
    return base64.b64decode(reveal(key), validate=True)


def _write(image: MetadataImage, change: ScramDeletion | ScramUpsertion) -> Put | None:
    mechanism = _MECHANISMS[change.mechanism]
    before = image.scram_credentials.get(change.user, {})
    kept = dict(before)
    if isinstance(change, ScramDeletion):
        del kept[mechanism]
    else:
        kept[mechanism] = ScramCredential(
            _decoded(change.salt),
            _decoded(change.stored_key),
            _decoded(change.server_key),
            change.iterations,
        )
    if kept == before:
        return None  # It was decided on before.
    value = scram_layout.encode_scram_credentials(kept) if kept else None
    return Put(scram_layout.scram_path(change.user), value)


def _told(change: ScramDeletion | ScramUpsertion) -> str:
    verb = "removed" if isinstance(change, ScramDeletion) else "changed"
    return f"{verb} the {_MECHANISMS[change.mechanism]} credential of user {change.user!r}"
