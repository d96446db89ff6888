"""Handles ControllerEvent, version 0: another broker has the controller decide on an event.

An API of Oncelog's, between its brokers, where Kafka's forward a client's request in an Envelope:
here the broker that has the client authorizes it, and sends what only the controller can do. No
client is told of it by ApiVersions. A broker that is not the controller answers NOT_CONTROLLER, and
a life of a broker that is not registered (any more) gets STALE_BROKER_EPOCH. An event of a newer
version gets UNSUPPORTED_VERSION, until the controller is upgraded too.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from oncelog.broker.net.request import Request
from oncelog.controller.event_codec import (
    MalformedEvent,
    UnknownEvent,
    decode_event,
    encode_reply,
)
from oncelog.core.errors import ErrorCode
from oncelog.metadata.store import StoreFailure
from oncelog.protocol.messages.controller_event import (
    ControllerEventRequest,
    ControllerEventResponse,
)

if TYPE_CHECKING:
    from oncelog.broker.apis.context import Context

log = logging.getLogger(__name__)


async def handle(
    context: Context, request: Request[ControllerEventRequest]
) -> ControllerEventResponse:
    """Reply with what is decided, and the revision of the metadata that shows it.

    What a stranger sends is not even decoded.
    """
    body, controller = request.body, context.controller
    reply = b""
    try:
        verdict = await controller.check_sender(body.broker_id, body.broker_epoch)
        if verdict is None:
            event = decode_event(body.event)
            verdict = await controller.take(body.broker_id, body.broker_epoch, event)
            if verdict.reply is not None:
                reply = encode_reply(event, verdict.reply)
    except MalformedEvent as error:
        log.warning("refused an event in the name of broker %d: %s", body.broker_id, error)
        is_newer = isinstance(error, UnknownEvent)
        code = ErrorCode.unsupported_version if is_newer else ErrorCode.invalid_request
        return ControllerEventResponse(error_code=code, error_message=str(error))
    except StoreFailure as failure:
        return ControllerEventResponse(
            error_code=ErrorCode.request_timed_out, error_message=str(failure)
        )
    return ControllerEventResponse(
        error_code=verdict.error,
        error_message=verdict.message,
        revision=verdict.revision,
        reply=reply,
    )
