"""How the crash table's administrator ends a transaction that hangs in some of its partitions."""

import asyncio
import json

import pytest

from oncelog.client.admin import Admin
from oncelog.core.ids import TopicPartition
from tests.interop.confluent import create_topic, fresh, transactional
from tests.spark import hanging
from tests.spark.hanging import end_hanging
from tests.spark.support import read

pytestmark = [pytest.mark.interop, pytest.mark.slow]


@pytest.mark.parametrize("is_committed", [True, False])
def test_it_ends_where_it_hangs_as_it_ended_elsewhere(
    bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch, is_committed: bool
) -> None:
    """INV-10: Apache Kafka may leave out the markers of some partitions only."""
    topic = create_topic(bootstrap_servers, 2)
    client = transactional(bootstrap_servers, fresh("tx"))
    client.begin_transaction()
    for partition in (0, 1):
        client.produce(topic, b"%d" % partition, partition=partition)
    client.flush()

    async def end_first() -> dict[str, object]:
        ended, left = TopicPartition(topic, 0), TopicPartition(topic, 1)
        async with Admin(bootstrap_servers) as admin:
            (one,) = (await admin.describe_producers([left]))[left]
            numbers = (one.producer_id, one.producer_epoch, one.coordinator_epoch)
            await admin.end_transaction(ended, *numbers, commit=is_committed)
        names = ("producer_id", "producer_epoch", "coordinator_epoch")
        found = dict(zip(names, numbers, strict=True))
        return {"topic": topic, "partition": 1, "start_offset": 0, **found}

    found = asyncio.run(end_first())
    commands: list[str] = []

    def tool(_: str, command: str, *words: str) -> str:
        commands.append(command)
        return json.dumps(found)

    monkeypatch.setattr(hanging, "_transactions", tool)
    told = end_hanging(bootstrap_servers, [topic])
    assert told == [f"{topic}-1 {'committed' if is_committed else 'aborted'}"]
    assert commands == (["find-hanging"] if is_committed else ["find-hanging", "abort"])
    if is_committed:
        values = [value for _, _, value in read(bootstrap_servers, topic)]
        assert sorted(values) == [b"0", b"1"]
