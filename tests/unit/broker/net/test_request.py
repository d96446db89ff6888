"""What is counted of requests."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from oncelog.broker.net.connection import ServerConnection
from oncelog.broker.net.dispatch import Dispatcher
from oncelog.broker.net.frames import ReadBuffer
from oncelog.broker.net.request import Api, Request, RequestMeter
from oncelog.protocol.api import ApiKey
from oncelog.protocol.codec import encode_request, request_class
from tests.unit.broker.net.test_connection import Peer, framed, promise


def test_a_time_falls_into_the_bucket_of_its_bit_length() -> None:
    meter = RequestMeter(Api(ApiKey.METADATA, lambda *_: None, reads_bytes=False), 1)
    for elapsed_us in (0, 1, 63, 64, 127, 1_000_000):
        meter.took(elapsed_us / 1_000_000 + 1e-9)
    filled = {at: count for at, count in enumerate(meter.buckets) if count}
    assert filled == {0: 1, 1: 1, 6: 1, 7: 2, 20: 1}
    assert meter.time_us == 1_000_255


async def test_a_request_takes_from_its_arrival_to_its_reply_also_while_it_is_queued() -> None:
    parked = promise(holds_back=True)

    def handle(_context: object, request: Request[Any]) -> object:
        return parked if request.api is ApiKey.METADATA else b"ok"

    def stop(reason: BaseException) -> None:
        raise reason

    peer, loop = Peer(), asyncio.get_running_loop()
    dispatcher = Dispatcher(None, lambda key: Api(key, handle, reads_bytes=True), stop, loop.time)
    peer.connection = ServerConnection(cast(Any, peer.server), dispatcher, ReadBuffer())
    peer.connection.connection_made(cast(Any, peer.transport))
    keys = ApiKey.METADATA, ApiKey.LIST_GROUPS
    peer.send(framed(*(encode_request(key, 1, 0, "t", request_class(key)()) for key in keys)))
    await asyncio.sleep(0.01)
    parked.complete(b"ok")
    await asyncio.sleep(0)
    assert len(peer.replies()) == 2
    assert [meter.api.key for meter in dispatcher.meters.values()] == list(keys)
    for meter in dispatcher.meters.values():
        assert 9_000 < meter.time_us < 60_000_000
