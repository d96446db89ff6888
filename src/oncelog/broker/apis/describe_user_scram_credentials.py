"""Handles DescribeUserScramCredentials (50), version 0: mechanisms and iterations (KIP-554).

No list, or an empty one, asks for all users. A named user without a credential gets
RESOURCE_NOT_FOUND, one named twice DUPLICATE_RESOURCE. Salts and keys are never shown. Gap: none
known.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from oncelog.broker.net.request import Request
from oncelog.core.errors import ErrorCode
from oncelog.core.sasl import MECHANISM_NUMBERS
from oncelog.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["handle"]


def handle(
    context: Context, request: Request[DescribeUserScramCredentialsRequest]
) -> DescribeUserScramCredentialsResponse:
    """Return what is known of each user."""
    stored = context.image.scram_credentials
    named = request.body.users or ()
    counts = Counter(user.name for user in named) if named else Counter(sorted(stored))
    return DescribeUserScramCredentialsResponse(
        results=tuple(_result(context, name, count) for name, count in counts.items())
    )


def _result(context: Context, name: str, count: int) -> DescribeUserScramCredentialsResult:
    found = context.image.scram_credentials.get(name, {})
    infos = tuple(
        CredentialInfo(mechanism=number, iterations=found[mechanism].iterations)
        for mechanism, number in MECHANISM_NUMBERS.items()
        if mechanism in found
    )
    if count > 1:
        error = ErrorCode.duplicate_resource
        text = (
            f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        )
    elif not infos:
        error = ErrorCode.resource_not_found
        text = f"Attempt to describe a user credential that does not exist: {name}"
    else:
        return DescribeUserScramCredentialsResult(user=name, credential_infos=infos)
    return DescribeUserScramCredentialsResult(user=name, error_code=error, error_message=text)
