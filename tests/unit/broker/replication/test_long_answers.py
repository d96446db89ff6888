"""An answer with many partitions, which must not hold up the loop."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from oncelog.broker.replication.fetcher import ReplicaFetcher
from oncelog.broker.replication.session import Key
from oncelog.core.errors import ErrorCode
from oncelog.core.limits import PARTITIONS_PER_TURN_COUNT_MAX
from oncelog.protocol.fetch import FetchPartitionResponse, FetchTopicResponse
from oncelog.protocol.fetch_values import FetchResponse


async def test_a_long_answer_is_taken_whole_in_several_turns_of_the_loop() -> None:
    """However many topics its partitions are of."""
    pauses: list[float] = []
    taken: list[Key] = []

    async def sleep(delay_ms: float) -> None:
        pauses.append(delay_ms)

    fetcher = SimpleNamespace(
        _parts=SimpleNamespace(clock=SimpleNamespace(sleep=sleep)),
        _take_one=lambda key, _: taken.append(key),
    )
    count = 2 * PARTITIONS_PER_TURN_COUNT_MAX + 1
    keys = [(UUID(int=1 + index % 3), index) for index in range(count)]
    topics = [
        FetchTopicResponse(None, topic_id, [FetchPartitionResponse(n) for n in range(of, count, 3)])
        for of, topic_id in enumerate(sorted({topic_id for topic_id, _ in keys}))
    ]
    response = FetchResponse(topics, 0, ErrorCode.none, 0, [])
    await ReplicaFetcher._take(cast(Any, fetcher), response)
    assert sorted(taken) == sorted(keys)
    assert pauses == [0, 0]
