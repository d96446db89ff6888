"""Handles DescribeUserScramCredentials (50), version 0: finds none (KIP-554).

No list, or an empty one, asks for all users and finds none. A named user gets RESOURCE_NOT_FOUND,
one named twice DUPLICATE_RESOURCE. Gap: SASL.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from oncelog.broker.net.request import Request
from oncelog.core.errors import ErrorCode
from oncelog.protocol.messages.describe_user_scram_credentials import (
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
    """Return an error for each user named."""
    counts = Counter(user.name for user in request.body.users or ())
    return DescribeUserScramCredentialsResponse(
        error_code=ErrorCode.none,
        results=tuple(_result(name, count) for name, count in counts.items()),
    )


def _result(name: str, count: int) -> DescribeUserScramCredentialsResult:
    if count > 1:
        error = ErrorCode.duplicate_resource
        text = (
            f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        )
    else:
        error = ErrorCode.resource_not_found
        text = f"Attempt to describe a user credential that does not exist: {name}"
    return DescribeUserScramCredentialsResult(
        user=name,
        error_code=error,
        error_message=text,
        credential_infos=(),
    )
