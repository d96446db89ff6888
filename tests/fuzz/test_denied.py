"""Requests of every API as a user who may do nothing: no name leaks, nothing fails or hangs."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from oncelog.controller.topics import TopicToCreate
from oncelog.core.config_keys import STANDARD_AUTHORIZER
from oncelog.core.ids import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from oncelog.protocol.api import ApiKey
from oncelog.protocol.produce import parse_produce_request
from tests.fuzz.corpus import TOPICS, Corpus, Frame, Known
from tests.unit.broker.context import running

SEED = 3


@pytest.mark.parametrize(
    "count", [150, pytest.param(1_000_000, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])]
)
async def test_who_may_do_nothing_learns_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, count: int
) -> None:
    corpus = Corpus(random.Random(SEED), Known())
    answered = 0
    async with running(tmp_path, {"authorizer.class.name": STANDARD_AUTHORIZER}) as context:
        controller = context.broker.controller
        await controller.create_topics([TopicToCreate(name, 2) for name in TOPICS])
        for internal in (TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC):
            await controller.internal_topic(internal)
        client = await context.connect()
        for _ in range(count):
            frame = corpus.frame()
            if has_no_answer(frame):
                continue
            await client.send(frame.data)
            reply = await client.receive()
            if reply is None:
                client = await context.connect()
                continue
            answered += 1
            for name in TOPICS:
                assert name.encode() in frame.data or name.encode() not in reply, frame
        partitions = [context.broker.partitions.get(name, 0) for name in TOPICS]
        assert [each and each.log.log_end_offset for each in partitions] == [0] * len(TOPICS)
        assert context.broker.image.topics.keys() == {
            *TOPICS,
            TRANSACTION_STATE_TOPIC,
            CONSUMER_OFFSETS_TOPIC,
        }
    assert answered > count / 2
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


def has_no_answer(frame: Frame) -> bool:
    """Whether it is a Produce without acks."""
    if frame.api is not ApiKey.PRODUCE:
        return False
    body = memoryview(frame.data)[frame.body :]
    return parse_produce_request(body, frame.version).acks == 0
