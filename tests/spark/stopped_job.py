"""A streaming job whose query is stopped while its write stage runs, as from a notebook.

Arguments: the job's options, and a file that the write task makes when it has begun.
"""

import sys
import time
from dataclasses import replace
from pathlib import Path

from tests.spark.job import LOCAL, JobOptions, builder_on, start
from tests.spark.sources import register
from tests.spark.striking import Stall

BEGIN_TIMEOUT_S = 120


def main() -> None:
    options, begun = JobOptions.decode(sys.argv[1]), Path(sys.argv[2])
    spark = builder_on(LOCAL).config("spark.jars", options.connector).getOrCreate()
    register(spark)
    query = start(spark, replace(options, fault=Stall("mid_task", 0, begun=str(begun))))
    deadline_s = time.monotonic() + BEGIN_TIMEOUT_S
    while not begun.exists():
        if time.monotonic() > deadline_s:
            raise TimeoutError("the write stage does not begin")
        time.sleep(0.05)
    began_s = time.monotonic()
    query.stop()
    print(f"stopped after {time.monotonic() - began_s:.1f} s, error: {query.exception()}")
    spark.stop()


if __name__ == "__main__":
    main()
