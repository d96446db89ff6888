"""Where a micro-batch of our sink spends its time: Spark's own phases, and the protocol's steps.

python -m bench.spark.profile ROWS VALUE_BYTES [BATCHES]

Runs against a broker of this checkout, like the bench, on records with a key that Spark's own
source reads. The steps are those that the sink writes to its `progress_path`, each told as the time
since the step before it.
"""

import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.run import folder
from bench.spark import queries, session
from bench.spark.inputs import Inputs, topics
from bench.systems import Oncelog, install
from oncelog.spark import exactly_once, read_progress
from tests.support.peer.kafka import ROOT

BATCHES = 12


def main() -> None:
    rows, value_bytes, *more = map(int, sys.argv[1:])
    count = more[0] if more else BATCHES
    install(ROOT, Oncelog.__name__.lower())
    spark = session.started()
    with folder() as home, ExitStack() as stack:
        place = stack.enter_context(tempfile.TemporaryDirectory())
        system = Oncelog(home)
        stack.push(system.__exit__)
        system.start()
        path = str(Path(place) / "progress")
        inputs = Inputs()
        origin = inputs.topic(system, value_bytes, rows * count)
        frame = session.read_by_spark(spark, system, origin, rows).select("key", "value")
        with topics(system, 1) as (topic,):
            writer = exactly_once(
                frame,
                bootstrap_servers=system.bootstrap_servers,
                application_id=f"{topic}-application",
                topic=topic,
                progress_path=path,
            )
            progress = queries.all_batches(writer)[1:]
        batches = [one["batchId"] for one in progress]
        found = {**queries.phases(progress), **queries.between(read_progress(path), batches)}
    table = Table(
        "what", "median ms", title=f"{rows:,} rows of {value_bytes} B, {count - 1} batches"
    )
    for name, ms in found.items():
        table.add_row(name, f"{ms:,.0f}")
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
