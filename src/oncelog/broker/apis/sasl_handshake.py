"""Handles SaslHandshake (17), versions 0-1: ILLEGAL_SASL_STATE.

A listener with SASL takes it before it comes here (`oncelog.broker.net.sasl`), unless the client is
authenticated and its session has no end, or began within the last second (KIP-368). Gap: none
known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.net.request import Request
from oncelog.core.errors import ErrorCode
from oncelog.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["handle"]


def handle(context: Context, request: Request[SaslHandshakeRequest]) -> SaslHandshakeResponse:
    """Refuse it: there is nothing to negotiate."""
    return SaslHandshakeResponse(error_code=ErrorCode.illegal_sasl_state)
