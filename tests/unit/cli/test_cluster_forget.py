"""`oncelog cluster forget` against a broker in this process."""

from __future__ import annotations

import json
from collections.abc import Callable

from click.testing import Result

Oncelog = Callable[..., Result]


def test_a_broker_that_runs_or_never_ran_is_not_forgotten(oncelog: Oncelog) -> None:
    broker = json.loads(oncelog("brokers", "list", "--json").stdout)["broker"]
    refused = oncelog("cluster", "forget", str(broker))
    assert refused.exit_code == 1
    assert f"Broker {broker} is registered: stop it first. (INVALID_REQUEST)" in refused.stderr
    unknown = oncelog("cluster", "forget", "77")
    assert unknown.exit_code == 1
    assert "Broker 77 was never registered. (BROKER_ID_NOT_REGISTERED)" in unknown.stderr
