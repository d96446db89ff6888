"""A leader whose authorizer does not know this broker is named, once."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncelog.core.errors import ErrorCode
from tests.unit.broker.replication.scripted_leader import bench, following, given


async def test_a_leader_that_takes_it_for_a_client_is_named_once_for_all_partitions(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    refused = ErrorCode.topic_authorization_failed
    async with bench(tmp_path) as broker:
        await broker.begin(following(), following())
        for _ in range(3):
            asked = await broker.next()
            asked.answer(*(given(index, error=refused) for index in asked.offsets))
        await broker.rest()
    (said,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert "name this broker's user in super.users of every broker" in said.getMessage()
