"""The rows about clients as tables, for the terminal and for docs/benchmarks.md."""

from collections.abc import Iterator
from importlib.metadata import version
from statistics import median

from rich.table import Table

from bench.clients.rows import CLIENT_ROWS, CLIENTS, OURS
from bench.results import Results
from bench.stats import ratio

BROKERS = {"oncelog": "Oncelog", "kafka": "Kafka", "base": "base"}
OTHERS = tuple(client for client in CLIENTS if client != OURS)
HEADINGS = (
    "work",
    "figure",
    "broker",
    *CLIENTS,
    *(f"{OURS} / {client} (95 %)" for client in OTHERS),
)


def lines(measured: Results) -> Iterator[list[str]]:
    """The cells of each figure that all clients have, in the order of the rows."""
    for key in CLIENT_ROWS:
        for (row, name), by_client in measured.samples.items():
            rounds = min((len(by_client.get(client, [])) for client in CLIENTS), default=0)
            if row == key and rounds:
                figure, _, broker = name.partition(" on ")
                found = {client: by_client[client][:rounds] for client in CLIENTS}
                ratios = [ratio(found[OURS], found[client]) for client in OTHERS]
                yield [
                    key,
                    figure,
                    BROKERS[broker],
                    *(number(median(values)) for values in found.values()),
                    *(f"{one.value:.2f} ({one.low:.2f} to {one.high:.2f})" for one in ratios),
                ]


def number(value: float) -> str:
    """With as many digits as mean something."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def terminal(measured: Results) -> list[Table]:
    """One table, if anything was measured."""
    found = list(lines(measured))
    if not found:
        return []
    table = Table(title="Clients on the same broker, medians")
    for heading in HEADINGS:
        table.add_column(heading, no_wrap=heading == "work")
    for cells in found:
        table.add_row(*cells)
    return [table]


def markdown(measured: Results) -> list[str]:
    """The section of docs/benchmarks.md; nothing if nothing was measured."""
    found = list(lines(measured))
    if not found:
        return []
    versions = ", ".join(f"{library} {version(library)}" for library in CLIENTS.values())
    commit = measured.facts.get("clients commit", "unknown")[:20]
    return [
        "## Clients",
        "",
        f"Python clients on the same broker, each in a process of its own: {versions} (commit"
        f" `{commit}`). Idempotent, acks=all, read_committed; linger and batch size as the row"
        " says, everything else as each comes: librdkafka checks no checksums of what it reads."
        " Members use the classic protocol, the range assignor and a heartbeat of 100 ms. CPU"
        " time and memory are the client's.",
        "",
        "| " + " | ".join(HEADINGS) + " |",
        "|---|---|---|" + "---:|" * len(CLIENTS) + "---|" * len(OTHERS),
        *("| " + " | ".join([CLIENT_ROWS[key].title, *cells]) + " |" for key, *cells in found),
        "",
    ]
