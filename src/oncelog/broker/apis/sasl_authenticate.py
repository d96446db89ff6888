"""Handles SaslAuthenticate (36), versions 0-2: ILLEGAL_SASL_STATE.

A listener with SASL takes it before it comes here (`oncelog.broker.net.sasl`); one after the end of
an authentication is a mistake of the client. Gap: none known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.net.request import Request
from oncelog.core.errors import ErrorCode
from oncelog.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["handle"]


def handle(context: Context, request: Request[SaslAuthenticateRequest]) -> SaslAuthenticateResponse:
    """Refuse it: no handshake came before."""
    return SaslAuthenticateResponse(
        error_code=ErrorCode.illegal_sasl_state,
        error_message="SaslAuthenticate request received after successful authentication",
    )
