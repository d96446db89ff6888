"""Grafana's dashboard and Prometheus' alerts ask for series that brokers have."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Sequence
from contextlib import suppress

import pytest

from oncelog import EmbeddedBroker, EmbeddedCluster, NewTopic
from oncelog.cli.metrics import MetricValue, parse
from oncelog.client import ClientError
from oncelog.sync import Admin, Consumer, Producer
from tests.support import alerts, dashboard, promql

METRICS = {"oncelog.metrics.address": "127.0.0.1:0"}
OF_OTHERS = frozenset({"up", "node_filesystem_avail_bytes", "node_filesystem_size_bytes"})
"""Prometheus' own, and node_exporter's."""


def test_the_dashboard_is_what_its_table_makes() -> None:
    assert dashboard.FILE.read_text() == dashboard.document(), "python -m tests.support.dashboard"


def test_the_page_has_the_alerts_of_the_rules() -> None:
    assert alerts.DOCUMENT.read_text() == alerts.document(), "python -m tests.support.alerts"


def test_no_panel_covers_another_one() -> None:
    panels = json.loads(dashboard.FILE.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


def work(servers: str, replicas: int) -> None:
    """A bit of all that is counted: records, a transaction, a group, a request that is refused."""
    topic = NewTopic("orders", 2, replicas)
    with Admin(servers) as admin:
        admin.create_topics([topic])
        with suppress(ClientError):
            admin.create_topics([topic])
    with Producer(servers, transactional_id="t") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("orders", b"1").result(30)
        producer.commit_transaction()
    with Consumer(servers, group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["orders"])
        while not consumer.poll(1000):
            pass
        consumer.commit()


def scraped(addresses: Sequence[tuple[str, int]]) -> list[MetricValue]:
    """All series, with the labels that Prometheus adds."""
    found = []
    for host, port in addresses:
        with urllib.request.urlopen(f"http://{host}:{port}/metrics") as answer:
            values = parse(answer.read().decode())
        added = {"job": "oncelog", "instance": f"{host}:{port}"}
        found += [one._replace(labels=one.labels | added) for one in values]
    return found


def missing(series: Sequence[MetricValue]) -> list[str]:
    """What the queries ask for and brokers do not have."""
    queries = [
        text.replace("$job", "oncelog").replace("$instance", ".+") for text in dashboard.QUERIES
    ]
    queries += [rule["expr"] for rule in alerts.alerts()]
    found = []
    for text in queries:
        query = promql.parse(text)
        labels: set[str] = set()
        for selector in query.selectors:
            chosen = [one for one in series if selector.takes(one.name, one.labels)]
            labels.update(*(one.labels for one in chosen))
            if not chosen and selector.metric not in OF_OTHERS:
                found.append(f"{selector.metric} of {text}")
        if not query.labels <= labels:
            found.append(f"labels {query.labels - labels} of {text}")
    return found


@pytest.mark.slow
def test_a_broker_has_what_every_query_asks_for() -> None:
    with EmbeddedBroker(config=METRICS) as broker:
        work(broker.bootstrap_servers, 1)
        assert missing(scraped([broker.call(lambda inside: inside.metrics.address)])) == []


@pytest.mark.slow
def test_three_brokers_have_what_every_query_asks_for() -> None:
    with EmbeddedCluster(3, config=METRICS) as cluster:
        work(cluster.bootstrap_servers, 3)
        addresses = [
            broker.call(lambda inside: inside.metrics.address) for broker in cluster.brokers
        ]
        assert missing(scraped(addresses)) == []


def test_a_query_for_what_no_broker_has_is_found() -> None:
    every = set(missing([]))
    assert any(text.startswith("oncelog_ready of sum(oncelog_ready") for text in every)
