"""Target topics that brokers do not know yet, or that refuse large record batches."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.client.errors import FatalError
from oncelog.core.errors import ErrorCode
from oncelog.core.limits import INT32_MAX
from oncelog.spark import target_lookup
from oncelog.spark.errors import TooLargeError, UsageError
from oncelog.spark.target_lookup import TargetLookup
from oncelog.spark.targets import Targets
from tests.unit.spark.test_preflight import OPTIONS


class Topics:
    """A cluster whose first `blind` answers have no topic. It may not be asked for configs."""

    def __init__(self, blind: int) -> None:
        self.blind = blind
        self.asked = 0

    async def list_topics(self) -> Mapping[str, Any]:
        self.asked += 1
        if self.asked <= self.blind:
            return {}
        names = {"t": 2, "u": 1, "__oncelog_markers": 1}
        return {
            name: SimpleNamespace(partitions=[None] * count, is_internal=name.startswith("__"))
            for name, count in names.items()
        }

    async def describe_configs(self, _topics: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        raise FatalError(ErrorCode.topic_authorization_failed)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time passes only in pauses."""
    now_s = [0.0]

    async def sleep(pause_s: float) -> None:
        now_s[0] += pause_s

    monkeypatch.setattr(target_lookup, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    monkeypatch.setattr(target_lookup, "asyncio", SimpleNamespace(sleep=sleep))


def ask(lookup: TargetLookup) -> Targets:
    return asyncio.run(lookup.ask())


def test_a_broker_that_has_just_started_may_not_know_the_topic_yet() -> None:
    topics = Topics(blind=3)
    assert ask(TargetLookup(OPTIONS, topics)).counts == (2,)
    assert topics.asked == 4


def test_a_topic_that_stays_missing_is_an_error_that_names_it() -> None:
    topics = Topics(blind=1000)
    with pytest.raises(UsageError, match="topic 't' does not exist"):
        ask(TargetLookup(OPTIONS, topics))
    assert topics.asked == 21


def test_without_a_topic_in_the_options_all_but_internal_ones_are_targets() -> None:
    found = ask(TargetLookup(replace(OPTIONS, topic=None), Topics(blind=0)))
    assert found.topics == ("t", "u")


def test_a_topic_that_refuses_a_batch_gets_smaller_ones_until_one_record_is_too_large() -> None:
    lookup = TargetLookup(OPTIONS, Topics(blind=0))
    assert ask(lookup).size_limits == (INT32_MAX,)
    lookup.limit_size(TooLargeError("t", 900, 12))
    assert ask(lookup).size_limits == (450,)
    with pytest.raises(UsageError, match="refuses a record of 450 bytes"):
        lookup.limit_size(TooLargeError("t", 450, 1))
