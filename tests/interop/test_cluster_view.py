"""Three brokers, of which one dies and comes back, beside what was seen of three of Apache Kafka's.

`cluster_view.json` is what the same steps gave with Apache Kafka: with the jars at hand,
``python -m tests.interop.cluster_view`` writes it anew, and a test of `make test-full` says whether
it still is so.
"""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.controller.topics import TopicToCreate
from tests.interop.cluster_view import (
    JAVA_VIEWS,
    PYTHON_VIEWS,
    RECORD,
    SETTINGS,
    Story,
    View,
    seen_of,
    seen_of_kafka,
    with_racks,
)
from tests.support.broker import broker_processes
from tests.support.members import members
from tests.support.peer.cluster import BrokerCluster

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(300)]

LIVE = {"2": "rack-2", "3": "rack-3"}
OURS: View = {
    # A broker that is away has no registration, so nothing can be told of it.
    "one away: kafka-python: brokers": LIVE,
    "one away: Java: cluster with fenced": "{2=rack-2, 3=rack-3}",
}
"""Where we differ, as docs/differences.md says."""


def ours_of(name: str, kafkas: Any) -> Any:
    """What we have to answer where Apache Kafka answers so."""
    if name in OURS:
        return OURS[name]
    text = json.dumps(kafkas)
    # The last leader of a partition that lost nothing is among the eligible ones.
    text = text.replace("Elr: 1 LastKnownElr: 1", "Elr: 1 LastKnownElr:")
    text = text.replace("elr [1] last [1]", "elr [1] last []")
    # The cluster's own configs are not a broker's to change.
    text = text.replace(
        "DYNAMIC_DEFAULT_BROKER_CONFIG,", "DYNAMIC_DEFAULT_BROKER_CONFIG read-only,"
    )
    text = text.replace(
        "unclean.leader.election.enable=false DEFAULT_CONFIG",
        "unclean.leader.election.enable=false DYNAMIC_DEFAULT_BROKER_CONFIG read-only",
    )
    return json.loads(text)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BrokerCluster[Any]]:
    with BrokerCluster(with_racks(broker_processes(tmp_path, 3, SETTINGS))) as three:
        yield three


def check(seen: View) -> None:
    kafkas: View = json.loads(RECORD.read_text())
    assert seen.keys() <= kafkas.keys()
    assert seen == {name: ours_of(name, kafkas[name]) for name in seen}


def test_clients_see_what_they_see_of_apache_kafka(cluster: BrokerCluster[Any]) -> None:
    check(seen_of(cluster, PYTHON_VIEWS))


async def test_each_broker_is_waited_for_itself() -> None:
    """One that lags behind is not taken for one of the others: clients ask whichever they know."""
    async with members(3) as three:
        cluster: Any = SimpleNamespace(brokers=three)
        story = Story(cluster, {})
        three[3].link.is_open.clear()
        created = [TopicToCreate("two", assignment={0: (1, 2)})]
        await three[1].broker.controller.create_topics(created)
        await three.until(lambda: "two" in three[2].broker.image.topics)
        while await asyncio.to_thread(story.isr, "two", 2) != [[1, 2]]:
            """It has not answered in time."""
        for _ in range(20):
            assert await asyncio.to_thread(story.isr, "two", 3) == []


@pytest.mark.soak
@pytest.mark.usefixtures("java_class_path")
def test_javas_admin_and_apaches_tools_see_it_too(cluster: BrokerCluster[Any]) -> None:
    check(seen_of(cluster, JAVA_VIEWS))


@pytest.mark.soak
@pytest.mark.usefixtures("java_class_path")
def test_apache_kafka_still_answers_so(tmp_path: Path) -> None:
    assert seen_of_kafka(tmp_path) == json.loads(RECORD.read_text())
