"""Writes docs/metrics.md from the table of metrics.

Run as ``python -m tests.support.metrics``; a unit test holds the document to what this makes.
"""

from oncelog.broker.metrics import METRICS
from oncelog.broker.metrics.metric import OURS, Metric
from tests.support.readers import SOURCES

DOCUMENT = SOURCES.parents[1] / "docs" / "metrics.md"

HEAD = """\
# Metrics

<!-- Made by `python -m tests.support.metrics` from src/oncelog/broker/metrics. -->

A broker counts under Apache Kafka's names, and Prometheus reads it over HTTP. It is off by default:

```properties
oncelog.metrics.address=127.0.0.1:9404
```

```yaml
scrape_configs:
  - job_name: oncelog
    static_configs:
      - targets: ["127.0.0.1:9404"]
```

`oncelog metrics` prints the same as a table, with `--json` as JSON, with a part of a name only the
metrics whose names contain it; `--address HOST:PORT` asks another broker (or Apache Kafka, where
jmx_exporter runs). That address has no authentication: whoever reaches it can read topic names and
counts, so keep it on a local interface.

A name here is what the usual rules of jmx_exporter make of Kafka's MBean, so dashboards made for
Kafka find what they look for. `*PerSec` becomes a counter that ends in `_total`; a rate is what
Prometheus' `rate()` makes of it. Where Kafka has percentiles there is a histogram:
`histogram_quantile(0.99, rate(kafka_network_requestmetrics_totaltimems_bucket[5m]))`. As in Kafka,
the metrics of topics have one value without a topic, for all of them, deleted ones included.
Counters begin at 0 with each start of the broker.

The lag of consumer groups has the names of kafka_exporter. It is shown by the group's coordinator
for partitions of which it has a replica in sync: in a cluster with no more brokers than replicas
that is all of them. Where there are more brokers, this is the lag of every group:

    max by (topic, partition) (kafka_topic_partition_current_offset)
      - on (topic, partition) group_right ()
        max by (consumergroup, topic, partition) (kafka_consumergroup_current_offset)

The same address tells a supervisor how the broker is, in a line: `/livez` answers 200 while the
event loop runs, `/readyz` 200 when the broker serves all that it should, else 503 with the reason
([Run it](running.md#health)). While the broker starts or stops, `/metrics` is 503 too.

Counting costs a few additions of integers per request, whether the address is set or not; with it
each request is timed as well. What that costs is less than what two processes differ by: over 100
alternating rounds (`python -m bench.metrics`) the least CPU of a Produce was 42 us with the address
and 50 without, of a transaction of one record 278 and 282 us (TV2) and 354 and 354 (TV1); the
ratios of the medians lay between 0.98 and 1.10.

Everything else is read on request. A scrape is
made in pieces, so it does not hold up requests, and one at a time. A request to the address may
have 8 KiB, 16 connections may be open at a time, and each is
cut after 10 s.

| Metric | Type, unit | Labels | Meaning | Kafka's MBean |
|---|---|---|---|---|
"""


def document() -> str:
    """The whole of docs/metrics.md."""
    return HEAD + "".join(map(row, METRICS))


def row(metric: Metric) -> str:
    """One line of the table."""
    cells = [
        f"`{metric.name}`",
        f"{metric.kind.value}, {metric.unit}",
        ", ".join(f"`{label}`" for label in metric.labels),
        metric.meaning.replace("|", "\\|"),
        "none, ours" if metric.mbean == OURS else mbean(metric.mbean),
    ]
    return f"| {' | '.join(cells)} |\n"


def mbean(text: str) -> str:
    """Where the name is from: Kafka's MBean, or in words the program that has made it usual."""
    return text if text.startswith("none") else f"`{text}`"


if __name__ == "__main__":
    DOCUMENT.write_text(document())
