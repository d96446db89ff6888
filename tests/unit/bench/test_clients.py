"""The rows about clients: which are chosen, that each client does each job, what is told."""

import argparse
import asyncio

import pytest

from bench.__main__ import chosen
from bench.clients import child, report
from bench.clients.drivers import DRIVERS
from bench.clients.jobs import PARTITIONS, Job
from bench.clients.rows import CLIENT_ROWS, CLIENTS, OURS
from bench.clients.run import in_a_process
from bench.results import Results, figure_at
from oncelog import EmbeddedBroker, NewTopic, sync

COUNT = 3000
SECONDS = 0.05
BALLAST_BYTES = 150_000_000
FIGURES = {
    Job.PRODUCE: {"MB/s", "CPU s/GB", "peak MB"},
    Job.CONSUME: {"MB/s", "CPU s/GB", "peak MB"},
    Job.GROUP: {"MB/s", "CPU s/GB", "peak MB"},
    Job.REBALANCE: {"joined, p50 ms", "left, p50 ms", "peak MB"},
    Job.LATENCY: {"p50 ms", "p99 ms", "CPU us/call", "peak MB"},
    Job.TRANSACTIONS: {"p50 ms", "p99 ms", "CPU us/call", "peak MB"},
}


def test_their_common_beginning_names_all_of_them() -> None:
    assert chosen(argparse.Namespace(only="clients")) == set(CLIENT_ROWS)
    assert {row.job for row in CLIENT_ROWS.values()} == set(Job)
    assert DRIVERS.keys() == CLIENTS.keys()


@pytest.mark.slow
@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_does_every_job(client: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "WARM_S", 0.01)
    monkeypatch.setattr(child, "WARM_COUNT", 100)
    with EmbeddedBroker() as broker:
        servers = broker.bootstrap_servers
        with sync.Admin(servers) as admin:
            admin.create_topics([NewTopic(job, PARTITIONS) for job in Job])
        for job in Job:
            # What was produced is consumed.
            topic = Job.PRODUCE if job in (Job.CONSUME, Job.GROUP) else job
            amount = COUNT if job in (Job.PRODUCE, Job.CONSUME, Job.GROUP) else SECONDS
            made = DRIVERS[client]()
            figures = asyncio.run(child.figures_of(made, servers, topic, job, amount))
            assert figures.keys() == FIGURES[job]
            assert min(figures.values()) > 0


@pytest.mark.slow
def test_the_memory_of_a_client_is_not_that_of_the_process_that_started_it() -> None:
    ballast = b"x" * BALLAST_BYTES
    with EmbeddedBroker() as broker:
        with sync.Admin(broker.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("t", PARTITIONS)])
        figures = in_a_process(OURS, Job.LATENCY, broker.bootstrap_servers, "t", SECONDS)
    assert figures["peak MB"] < len(ballast) / 1e6


def test_all_clients_of_a_figure_stand_in_one_line_with_their_ratios() -> None:
    measured = Results()
    for client, rate in ((OURS, 50.0), ("confluent", 200.0), ("aiokafka", 25.0)):
        for _ in range(3):
            at = {figure_at("MB/s", "oncelog"): rate}
            measured.add("clients-produce", client, at)
    (cells,) = report.lines(measured)
    assert cells[:6] == ["clients-produce", "MB/s", "Oncelog", "50.0", "200", "25.0"]
    assert cells[6:] == ["0.25 (0.25 to 0.25)", "2.00 (2.00 to 2.00)"]
    assert "## Clients" in report.markdown(measured)


def test_a_figure_that_a_client_lacks_is_not_told_and_no_figures_are_no_section() -> None:
    measured = Results()
    measured.add("clients-produce", OURS, {figure_at("MB/s", "oncelog"): 1.0})
    assert list(report.lines(measured)) == []
    assert report.markdown(measured) == []
    assert report.terminal(measured) == []
