"""A transaction's coordinator that finds no producer id when its decision needs one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oncelog.broker.coordination.producer_ids import ProducerIds
from oncelog.core.errors import ErrorCode
from oncelog.protocol.api import ApiKey
from tests.unit.broker.context import running


async def test_the_request_is_refused_and_the_next_one_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while no block of ids can be had: the client asks again, and nothing hangs meanwhile."""
    async with running(tmp_path) as context:
        client = await context.connect()
        asked: dict[str, Any] = {"transactional_id": "id", "transaction_timeout_ms": 60_000}
        asked |= {"producer_id": -1, "producer_epoch": -1}
        await client.ask(ApiKey.FIND_COORDINATOR, coordinator_keys=("id",), key_type=1)
        with monkeypatch.context() as patch:
            patch.setattr(ProducerIds, "take", lambda _: None)
            patch.setattr(ProducerIds, "remaining_count", 1)
            refused = await client.ask(ApiKey.INIT_PRODUCER_ID, **asked)
        assert refused.error_code is ErrorCode.coordinator_load_in_progress
        served = await client.ask(ApiKey.INIT_PRODUCER_ID, **asked)
        assert served.error_code is ErrorCode.none
        assert served.producer_epoch == 0
