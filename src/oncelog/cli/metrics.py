"""``oncelog metrics``: what a broker counts, as Prometheus reads it.

It reads the text at the address of the metrics: a broker's `oncelog.metrics.address`, or Apache
Kafka's through jmx_exporter.
"""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import click

from oncelog.cli.output import Column, print_json, print_rows
from oncelog.cli.tool import Failure, ToolCommand, json_option
from oncelog.core.config_definition import ConfigError
from oncelog.core.limits import METRICS_TEXT_BYTES_MAX
from oncelog.core.listeners import Endpoint, parse_listener

__all__ = ["MetricValue", "command", "parse"]

DEFAULT_ADDRESS: Final = "127.0.0.1:9404"
TIMEOUT_S: Final = 10

_LINE: Final = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? +(\S+)(?: +-?\d+)?")
_LABEL: Final = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)",?')
_ESCAPE: Final = re.compile(r"\\(.)")

_COLUMNS: Final = (
    Column("metric", "Metric", style="bold", wraps=True),
    Column("labels", "Of", wraps=True),
    Column("value", "Value", numeric=True),
)


class MetricValue(NamedTuple):
    """One value of a metric."""

    name: str
    labels: dict[str, str]
    value: float


@click.command("metrics", cls=ToolCommand)
@click.argument("part", default="")
@click.option(
    "--address",
    metavar="HOST:PORT",
    default=DEFAULT_ADDRESS,
    show_default=True,
    help="Where the metrics are: the broker's oncelog.metrics.address.",
)
@json_option("Print JSON, one object per value, those of histograms' buckets included.")
def command(part: str, address: str, as_json: bool) -> None:
    """Print what a broker counts; with PART only the metrics whose names contain it."""
    try:
        endpoint = parse_listener("--address", address)
    except ConfigError as error:
        raise Failure(str(error), 2) from None
    values = [value for value in parse(read(endpoint)) if part.lower() in value.name]
    if part and not values:
        raise Failure(f"no metric has {part} in its name: `oncelog metrics` lists all")
    if as_json:
        for value in values:
            print_json({"metric": value.name, "labels": value.labels, "value": value.value})
        return
    # A bucket's bound is its label `le`: only a program makes something of those.
    rows = [
        (value.name, ", ".join(f"{k}={v}" for k, v in value.labels.items()), _shown(value.value))
        for value in values
        if "le" not in value.labels
    ]
    print_rows(_COLUMNS, rows, as_json=False)


def read(endpoint: Endpoint) -> str:
    """The text at an address. Raises `Failure`."""
    connection = http.client.HTTPConnection(*endpoint, timeout=TIMEOUT_S)
    where = f"{endpoint.host}:{endpoint.port}"
    try:
        connection.request("GET", "/metrics")
        response = connection.getresponse()
        text = response.read(METRICS_TEXT_BYTES_MAX)
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or error
        raise Failure(
            f"no metrics at {where} ({reason}): is a broker running with "
            f"oncelog.metrics.address={where}?"
        ) from None
    finally:
        connection.close()
    if response.status != http.client.OK:
        said = text[:200].decode("utf-8", "replace").strip()
        raise Failure(f"{where} answers {response.status} to GET /metrics: {said}")
    return text.decode("utf-8", "replace")


def parse(text: str) -> Iterator[MetricValue]:
    """The values in Prometheus' text. Raises `Failure` for a line that is none."""
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        found = _LINE.fullmatch(line.rstrip())
        if found is None:
            raise Failure(f"no line of Prometheus' text format: {line[:80]}")
        name, labels, number = found.groups()
        try:
            value = float(number)
        except ValueError:
            raise Failure(f"no number in Prometheus' text format: {line[:80]}") from None
        yield MetricValue(name, {k: _unescaped(v) for k, v in _LABEL.findall(labels or "")}, value)


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda found: "\n" if found[1] == "n" else found[1], text)


def _shown(value: float) -> int | str:
    return int(value) if value.is_integer() else f"{value:.3f}"
