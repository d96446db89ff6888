"""`oncelog metrics`."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from oncelog.broker.embedded import EmbeddedBroker
from oncelog.cli.main import main
from oncelog.cli.metrics import MetricValue, parse
from oncelog.cli.tool import Failure


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, ["metrics", *arguments])
    return result.exit_code, result.stdout, result.stderr


def test_a_brokers_metrics_are_printed_by_part_of_their_name(tmp_path: Path) -> None:
    config = {"oncelog.metrics.address": "127.0.0.1:0"}
    with EmbeddedBroker(str(tmp_path), config=config) as broker:
        host, port = broker.broker.metrics.address
        code, out, _ = run("--address", f"{host}:{port}", "BrokerState")
        assert (code, out) == (0, "kafka_server_kafkaserver_brokerstate\t\t3\n")
        code, out, _ = run("--address", f"{host}:{port}", "brokerstate", "--json")
    assert json.loads(out) == {
        "metric": "kafka_server_kafkaserver_brokerstate",
        "labels": {},
        "value": 3.0,
    }


def test_a_name_that_no_metric_has_is_said() -> None:
    with EmbeddedBroker(config={"oncelog.metrics.address": "127.0.0.1:0"}) as broker:
        host, port = broker.broker.metrics.address
        code, out, err = run("--address", f"{host}:{port}", "nosuch")
    assert (code, out) == (1, "")
    assert err == "Error: no metric has nosuch in its name: `oncelog metrics` lists all\n"


def test_without_an_answer_one_line_names_what_to_set() -> None:
    code, _, err = run("--address", "127.0.0.1:1")
    assert code == 1
    assert "oncelog.metrics.address=127.0.0.1:1" in err
    assert len(err.splitlines()) == 1


def test_an_address_that_is_none_is_misuse() -> None:
    code, _, err = run("--address", "nowhere")
    assert code == 2
    assert len(err.splitlines()) == 1


def test_comments_and_times_are_passed_over() -> None:
    text = '# HELP a b\n\na{x="1",y="2"} 3.5 1700000000000\nb +Inf\n'
    assert list(parse(text)) == [
        MetricValue("a", {"x": "1", "y": "2"}, 3.5),
        MetricValue("b", {}, float("inf")),
    ]


@pytest.mark.parametrize("line", ["<html>", "a b", 'a{x="1" 3'])
def test_what_is_no_metric_is_refused(line: str) -> None:
    with pytest.raises(Failure, match="Prometheus"):
        list(parse(line))
