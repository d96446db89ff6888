"""Apache's kafka-dump-log reads the folder of a follower."""

import re
from pathlib import Path

import pytest

from oncelog.client import Producer
from oncelog.controller.topics import TopicToCreate
from oncelog.core.errors import ErrorCode
from tests.interop.test_dump_log import dump
from tests.support.members import members
from tests.support.peer.kafka import PeerUnavailable, jars

pytestmark = [pytest.mark.interop, pytest.mark.slow]


async def test_the_tool_reads_a_followers_files_as_its_leaders() -> None:
    try:
        jars()
    except PeerUnavailable as reason:
        pytest.skip(f"Apache Kafka's tools cannot be had: {reason}")
    async with members(2, {"log.index.interval.bytes": 100}) as cluster:
        office = cluster[2].broker.controller
        (made,) = await office.create_topics([TopicToCreate("t", 1, 2)])
        assert made.error is ErrorCode.none
        await cluster.agreed()
        servers = cluster[1].broker.bootstrap_servers
        async with Producer(servers, acks="all", enable_idempotence=True) as producer:
            for number in range(50):
                await producer.send("t", b"value %d" % number)
        texts: list[str] = []
        for broker_id in (1, 2):
            await cluster.stop(broker_id)
            folder = Path(cluster[broker_id].folder) / "t-0"
            text = dump(folder / f"{0:020d}.log", "--print-data-log", "--deep-iteration")
            assert len(re.findall(r" payload: value ", text)) == 50
            texts.append(text.replace(str(folder), ""))
            assert "isvalid: false" not in text
            for suffix in (".index", ".timeindex"):
                found = dump(folder / f"{0:020d}{suffix}", "--index-sanity-check")
                assert "passed sanity check" in found
            snapshot = next(folder.glob("*.snapshot"))
            assert "lastOffset: 49" in dump(snapshot)
        assert texts[0] == texts[1]
