"""One transaction as a sequence: the requests that a broker got, and what its coordinator did.

A producer of ours reads nothing, writes to two topics and a group's offsets, and commits; the
requests are those of its connections as the dispatcher starts them, the steps those that the
coordinator remembers.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Final

from oncelog import Admin, NewTopic, OffsetAndMetadata, Producer, TopicPartition
from oncelog.broker import apis
from oncelog.broker.net.request import Api, Request
from oncelog.client import TransactionStep
from oncelog.protocol.api import ApiKey
from oncelog.testing import ControlledBroker
from tests.support.pictures.drawing import Drawing

__all__ = ["draw"]

SMALL: Final = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}
LANES: Final = ("producer", "transaction coordinator", "orders-0", "sums-0", "__consumer_offsets-0")
LEFT, STEP, TOP, LANE = 90, 34, 60, 190
LANE_OF: Final = {
    ApiKey.FIND_COORDINATOR: 1,
    ApiKey.INIT_PRODUCER_ID: 1,
    ApiKey.ADD_OFFSETS_TO_TXN: 1,
    ApiKey.ADD_PARTITIONS_TO_TXN: 1,
    ApiKey.END_TXN: 1,
    ApiKey.TXN_OFFSET_COMMIT: 4,
}
"""Which part of the broker a request is for; Produce is for a partition."""


class _Watch:
    """Notes the requests of one client."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self.seen: list[ApiKey] = []

    def find(self, key: ApiKey) -> Api | None:
        """How an API is served, with a note of each request."""
        api = apis.find(key)
        if api is None or (key not in LANE_OF and key is not ApiKey.PRODUCE):
            return api
        return api._replace(handle=partial(self._handle, api))

    def _handle(self, api: Api, context: Any, request: Request[Any]) -> Any:
        if request.client_id == self._client_id:
            self.seen.append(api.key)
        return api.handle(context, request)


def draw() -> str:
    """The picture."""
    watch = _Watch("adder")
    with ControlledBroker(config=SMALL) as broker:
        broker.call(lambda inside: inside.dispatcher.serve_by(watch.find))
        steps = asyncio.run(_run(broker.bootstrap_servers))
    return _picture(watch.seen, steps)


async def _run(servers: str) -> tuple[TransactionStep, ...]:
    """Carry the transaction out; what the coordinator remembers of it."""
    async with Admin(servers) as admin:
        await admin.create_topics([NewTopic("orders", 1), NewTopic("sums", 1)])
        async with Producer(servers, transactional_id="adder", client_id="adder") as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            for topic in ("orders", "sums"):
                await producer.send(topic, b"3 fruits", partition=0)
            position = {TopicPartition("orders", 0): OffsetAndMetadata(1)}
            await producer.send_offsets_to_transaction(position, "adders")
            await producer.commit_transaction()
        described = await admin.describe_transaction("adder")
        while described.state != "CompleteCommit":
            await asyncio.sleep(0)
            described = await admin.describe_transaction("adder")
    return described.life


def _picture(seen: list[ApiKey], steps: tuple[TransactionStep, ...]) -> str:
    done = [step for step in steps if step.kind in ("prepare commit", "marker", "complete commit")]
    markers = [str(each) for step in done if step.kind == "marker" for each in step.partitions]
    height = TOP + STEP * (len(dict.fromkeys(seen)) + len(markers) + 5)
    drawing = Drawing(LEFT * 2 + LANE * (len(LANES) - 1), height, "One transaction, as a sequence")
    for number, name in enumerate(LANES):
        x = LEFT + LANE * number
        drawing.text(x, 30, name, anchor="middle", bold=True)
        drawing.line(x, 40, x, height - 10, dashed=True)
    y = TOP
    writes = iter((2, 3))
    for key in _without_repeats(seen):
        lane = next(writes) if key is ApiKey.PRODUCE else LANE_OF[key]
        _arrow(drawing, y, 0, lane, _name(key))
        y += STEP
    for step in done:
        if step.kind != "marker":
            text = step.kind.upper().replace(" ", "_") + f", epoch {step.producer_epoch}"
            drawing.box(LEFT + LANE - 100, y - 16, 200, 24, "#ddf4ff")
            drawing.text(LEFT + LANE, y, text, anchor="middle")
            y += STEP
            if step.kind == "prepare commit":
                _arrow(drawing, y, 1, 0, "EndTxn's reply")
                y += STEP
            continue
        for name in markers:
            _arrow(drawing, y, 1, LANES.index(name), "marker: commit")
            y += STEP
    return str(drawing)


def _without_repeats(seen: list[ApiKey]) -> list[ApiKey]:
    """Each request once, Produce twice: it went to two partitions."""
    kept = list(dict.fromkeys(seen))
    kept.insert(kept.index(ApiKey.PRODUCE), ApiKey.PRODUCE)
    return kept


def _arrow(drawing: Drawing, y: int, start: int, end: int, text: str) -> None:
    x1, x2 = LEFT + LANE * start, LEFT + LANE * end
    drawing.line(x1, y, x2, y, tip=True)
    drawing.text(min(x1, x2) + 10, y - 6, text)


def _name(key: ApiKey) -> str:
    return "".join(word.capitalize() for word in key.name.split("_"))
