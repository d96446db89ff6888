"""Puts the time for which a client is throttled into a response that is encoded already (KIP-219).

Handlers of Produce and Fetch encode their responses themselves, before anything is known of quotas:
few clients are ever throttled, so what it costs then does not matter.
"""

from __future__ import annotations

from collections.abc import Sequence

from oncelog.protocol import produce
from oncelog.protocol.fetch_values import FLEXIBLE_SINCE
from oncelog.protocol.wire import INT32, Buffer

__all__ = ["throttled_fetch", "throttled_produce"]

_CORRELATION_ID_BYTES = 4


def throttled_produce(reply: Buffer, version: int, throttle_ms: int) -> bytes:
    """Return a Produce response (header and body) with that time."""
    position = _CORRELATION_ID_BYTES + (version >= produce.FLEXIBLE_SINCE)
    response = produce.parse_produce_response(reply, version, position)
    return produce.encode_produce_response(
        version,
        INT32.unpack_from(reply)[0],
        response.topics,
        throttle_ms,
        response.node_endpoints,
    )


def throttled_fetch(reply: Sequence[Buffer], version: int, throttle_ms: int) -> list[Buffer]:
    """Return the buffers of a Fetch response with that time; the records are not copied."""
    position = _CORRELATION_ID_BYTES + (version >= FLEXIBLE_SINCE)
    head = bytearray(reply[0])
    INT32.pack_into(head, position, throttle_ms)
    return [head, *reply[1:]]
