"""Writes deploy/grafana/oncelog.json: Grafana's dashboard of one broker or of a cluster.

Run as ``python -m tests.support.dashboard``; a unit test holds the file to what this makes, and
another one holds each query to what brokers under load expose. `$job` and `$instance` are the
dashboard's variables, `$__rate_interval` is Grafana's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from tests.support.readers import SOURCES

__all__ = ["FILE", "QUERIES", "document"]

FILE: Final = SOURCES.parents[1] / "deploy" / "grafana" / "oncelog.json"
_WIDTH: Final = 24
"""Of Grafana's grid."""
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_BY_BROKER: Final = "{{instance}}"


class Query(NamedTuple):
    """One line, or family of lines, of a panel. `*` in it stands for the dashboard's choice."""

    text: str
    legend: str = ""

    @property
    def expr(self) -> str:
        """In PromQL, with Grafana's variables."""
        return self.text.replace("*", 'job="$job",instance=~"$instance"')


class Panel(NamedTuple):
    """A picture; `bad` is the value from which a number is shown in red."""

    title: str
    queries: Sequence[Query]
    unit: str = "short"
    meaning: str = ""
    bad: float | None = None
    good: float | None = None
    """The value that a number has to have at least."""

    @property
    def is_number(self) -> bool:
        """Whether it is shown as one number, not over time."""
        return self.bad is not None or self.good is not None


def _rate(metric: str, by: str, legend: str = _BY_BROKER) -> Query:
    return Query(f"sum by ({by}) (rate({metric}[$__rate_interval]))", legend)


def _sum(metric: str, legend: str = _BY_BROKER, by: str = "instance") -> Query:
    return Query(f"sum by ({by}) ({metric}{{*}})", legend)


def _number(expr: str) -> tuple[Query]:
    return (Query(expr),)


def _percentile(quantile: float, request: str) -> Query:
    times = f'kafka_network_requestmetrics_totaltimems_bucket{{*,request="{request}"}}'
    rates = f"sum by (le) (rate({times}[$__rate_interval]))"
    return Query(f"histogram_quantile({quantile}, {rates})", f"{request} p{quantile * 100:.0f}")


def _lag(end: str) -> Query:
    by_partition = f"max by (topic, partition) ({end})"
    committed = "max by (consumergroup, topic, partition) (kafka_consumergroup_current_offset{*})"
    lag = f"clamp_min({by_partition} - on (topic, partition) group_right () {committed}, 0)"
    return Query(f"topk(10, sum by (consumergroup) ({lag}))", "{{consumergroup}}")


_REPLICAS: Final = "kafka_server_replicamanager_"
_CONTROLLER: Final = "kafka_controller_kafkacontroller_"
_ELECTIONS: Final = "kafka_controller_controllerstats_"
_TOPICS: Final = "kafka_server_brokertopicmetrics_"
_ENDS: Final = 'kafka_topic_partition_current_offset{job="$job"}'

ROWS: Final[dict[str, Sequence[Panel]]] = {
    "How it is": (
        Panel("Brokers that are ready", _number("sum(oncelog_ready{*})"), good=1),
        Panel("Registered brokers", _number(f"max({_CONTROLLER}activebrokercount{{*}})"), good=1),
        Panel("Controllers", _number(f"sum({_CONTROLLER}activecontrollercount{{*}})"), good=1),
        Panel("Without a leader", _number(f"max({_CONTROLLER}offlinepartitionscount{{*}})"), bad=1),
        Panel("Under min ISR", _number(f"sum({_REPLICAS}underminisrpartitioncount{{*}})"), bad=1),
        Panel(
            "Under-replicated", _number(f"sum({_REPLICAS}underreplicatedpartitions{{*}})"), bad=1
        ),
        Panel(
            "Folders off line",
            _number("sum(kafka_log_logmanager_offlinelogdirectorycount{*})"),
            bad=1,
        ),
        Panel(
            "Store away", _number("max(oncelog_metadata_store_away_seconds{*})"), unit="s", bad=1
        ),
    ),
    "Replicas and leaders": (
        Panel(
            "Not in sync",
            (
                _sum(f"{_REPLICAS}underreplicatedpartitions", "under-replicated, {{instance}}"),
                _sum(f"{_REPLICAS}underminisrpartitioncount", "under min ISR, {{instance}}"),
                _sum(f"{_REPLICAS}atminisrpartitioncount", "at min ISR, {{instance}}"),
                _sum(f"{_REPLICAS}reassigningpartitions", "reassigned, {{instance}}"),
            ),
            meaning="Partitions by the broker that leads them.",
        ),
        Panel(
            "Changes of ISRs",
            (
                _rate(f"{_REPLICAS}isrshrinks_total{{*}}", "instance", "shrinks, {{instance}}"),
                _rate(f"{_REPLICAS}isrexpands_total{{*}}", "instance", "expands, {{instance}}"),
                _rate(
                    f"{_REPLICAS}failedisrupdates_total{{*}}", "instance", "refused, {{instance}}"
                ),
            ),
            "ops",
        ),
        Panel(
            "Lag of followers",
            (
                Query(
                    "max by (instance) (kafka_server_replicafetchermanager_maxlag{*})", _BY_BROKER
                ),
            ),
            meaning="Records that the replica farthest behind lacks of what is committed.",
        ),
        Panel("Partitions led", (_sum(f"{_REPLICAS}leadercount"),)),
        Panel(
            "Elections of leaders",
            (
                _rate(f"{_ELECTIONS}leaderelectionrateandtimems_count{{*}}", "instance"),
                _rate(
                    f"{_ELECTIONS}uncleanleaderelections_total{{*}}",
                    "instance",
                    "unclean, {{instance}}",
                ),
            ),
            "ops",
        ),
        Panel(
            "Controller",
            (_sum(f"{_CONTROLLER}activecontrollercount"),),
            meaning="1 at the broker that is the controller.",
        ),
    ),
    "Transactions and groups": (
        Panel(
            "Load time of coordinators",
            (
                Query(
                    "max by (instance) "
                    "(kafka_server_transaction_coordinator_metrics_partition_load_time_max{*})",
                    "transactions, {{instance}}",
                ),
                Query(
                    "max by (instance) "
                    "(kafka_server_group_coordinator_metrics_partition_load_time_max{*})",
                    "groups, {{instance}}",
                ),
            ),
            "ms",
            "Longest of the last 50 partitions that a coordinator has loaded.",
        ),
        Panel(
            "Lag to the high watermark",
            (_lag(_ENDS),),
            meaning="The ten groups farthest behind; their partitions added up.",
        ),
        Panel(
            "Lag of read_committed readers",
            (
                _lag(
                    f"{_ENDS} - on (job, instance, topic, partition) "
                    'kafka_cluster_partition_laststableoffsetlag{job="$job"}'
                ),
            ),
            meaning="The same to the last stable offset, behind which open transactions lie.",
        ),
        Panel("Transactional ids", (_sum("oncelog_transactional_ids", "{{state}}", by="state"),)),
        Panel(
            "Oldest open transaction",
            (Query("max by (instance) (oncelog_oldest_open_transaction_seconds{*})", _BY_BROKER),),
            "s",
        ),
        Panel(
            "What waits",
            (
                _sum(
                    "kafka_coordinator_transaction_transactionmarkerchannelmanager_"
                    "unknowndestinationqueuesize",
                    "markers, {{instance}}",
                ),
                _sum(f"{_REPLICAS}partitionswithlatetransactionscount", "hanging, {{instance}}"),
                _sum("oncelog_coordinator_waiting_requests", "requests, {{instance}}"),
            ),
        ),
    ),
    "Requests": (
        Panel(
            "Requests",
            (_rate("kafka_network_requestmetrics_requests_total{*}", "request", "{{request}}"),),
            "reqps",
        ),
        Panel(
            "How long they take",
            tuple(
                _percentile(quantile, request)
                for request in ("Produce", "Fetch")
                for quantile in (0.5, 0.99)
            ),
            "ms",
            "A Fetch waits for records, as long as its client says.",
        ),
        Panel(
            "Errors answered",
            (_rate("kafka_network_requestmetrics_errors_total{*}", "error", "{{error}}"),),
            "ops",
        ),
        Panel(
            "Records appended",
            (_rate(f'{_TOPICS}messagesin_total{{*,topic=""}}', "instance"),),
            "ops",
        ),
        Panel(
            "Bytes",
            (
                _rate(f'{_TOPICS}bytesin_total{{*,topic=""}}', "instance", "in, {{instance}}"),
                _rate(f'{_TOPICS}bytesout_total{{*,topic=""}}', "instance", "out, {{instance}}"),
            ),
            "Bps",
        ),
        Panel("Connections", (_sum("kafka_server_socket_server_metrics_connection_count"),)),
    ),
    "Processes": (
        Panel(
            "Processor time",
            (_rate("process_cpu_seconds_total{*}", "instance"),),
            "percentunit",
            "Of one core: the event loop of a broker has no use for more than a little above one.",
        ),
        Panel("Memory", (_sum("process_resident_memory_bytes"),), "bytes"),
        Panel(
            "Descriptors",
            (
                _sum("process_open_fds", "open, {{instance}}"),
                _sum("process_max_fds", "limit, {{instance}}"),
            ),
        ),
        Panel("Bytes of logs", (_sum("kafka_log_log_size"),), "bytes"),
        Panel("Running for", (Query("time() - process_start_time_seconds{*}", _BY_BROKER),), "s"),
        Panel(
            "Versions",
            (_sum("oncelog_build_info", "{{version}} on Python {{python}}", by="version, python"),),
        ),
    ),
}

QUERIES: Final = tuple(
    query.expr for panels in ROWS.values() for panel in panels for query in panel.queries
)


def document() -> str:
    """The whole file."""
    return json.dumps(_dashboard(), indent=1) + "\n"


def _dashboard() -> dict[str, Any]:
    return {
        "uid": "oncelog",
        "title": "Oncelog",
        "tags": ["oncelog", "kafka"],
        "editable": True,
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {
            "list": [_data_source(), _variable("job", "oncelog_build_info"), _brokers()]
        },
        "panels": list(_panels()),
    }


def _data_source() -> dict[str, Any]:
    return {
        "name": "datasource",
        "type": "datasource",
        "query": "prometheus",
        "label": "Prometheus",
    }


def _variable(label: str, series: str) -> dict[str, Any]:
    query = f"label_values({series}, {label})"
    return {
        "name": label,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": label},
        "refresh": 2,
        "sort": 1,
    }


def _brokers() -> dict[str, Any]:
    every = {"includeAll": True, "multi": True, "current": {"text": "All", "value": "$__all"}}
    return {**_variable("instance", 'oncelog_build_info{job="$job"}'), "label": "broker", **every}


def _panels() -> Iterator[dict[str, Any]]:
    """Rows from the top down: numbers eight beside each other, pictures three."""
    number, top = 0, 0
    for title, panels in ROWS.items():
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": title,
            "collapsed": False,
            "panels": [],
            "gridPos": _place(0, top, _WIDTH, 1),
        }
        top += 1
        is_numbers = all(panel.is_number for panel in panels)
        beside, height = (8, 4) if is_numbers else (3, 8)
        width = _WIDTH // beside
        for at, panel in enumerate(panels):
            number += 1
            down, across = divmod(at, beside)
            place = _place(across * width, top + down * height, width, height)
            yield {"id": number, **_panel(panel), "gridPos": place}
        top += height * -(-len(panels) // beside)


def _place(x: int, y: int, w: int, h: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": w, "h": h}


def _panel(panel: Panel) -> dict[str, Any]:
    targets = [
        {
            "refId": chr(ord("A") + at),
            "datasource": _SOURCE,
            "expr": query.expr,
            "legendFormat": query.legend or "__auto",
        }
        for at, query in enumerate(panel.queries)
    ]
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    options: dict[str, Any] = {"tooltip": {"mode": "multi", "sort": "desc"}}
    if panel.is_number:
        low, high = ("green", "red") if panel.bad is not None else ("red", "green")
        turn = panel.bad if panel.bad is not None else panel.good
        steps = [{"color": low, "value": None}, {"color": high, "value": turn}]
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
        options = {"colorMode": "background", "reduceOptions": {"calcs": ["lastNotNull"]}}
    return {
        "type": "stat" if panel.is_number else "timeseries",
        "title": panel.title,
        "description": panel.meaning,
        "datasource": _SOURCE,
        "targets": targets,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
    }


if __name__ == "__main__":
    FILE.write_text(document())
