"""Handles UnregisterBroker (64), version 0: a broker is gone for good, and nothing waits for it.

Any broker takes it, the controller decides. An id that was never registered gets
BROKER_ID_NOT_REGISTERED, as in Kafka. Gaps: a broker that is still registered is refused, and so is
one that alone may have records of a partition (INVALID_REQUEST with a message), where Kafka's
controller removes both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.net.request import Request
from oncelog.controller.events import ForgetBroker
from oncelog.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

__all__ = ["handle"]


async def handle(
    context: Context, request: Request[UnregisterBrokerRequest]
) -> UnregisterBrokerResponse:
    """Have the controller forget the broker, or return the error."""
    outcome = await context.controller.submit(ForgetBroker(request.body.broker_id))
    return UnregisterBrokerResponse(error_code=outcome.error, error_message=outcome.message)
