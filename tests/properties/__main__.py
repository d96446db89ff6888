"""Tries many examples: ``python -m tests.properties --examples 5000 --seed 1 [--evidence]``.

What fails is made smaller and printed. Part of `make test-full`, with evidence.
"""

import argparse
import logging
import random
import time

from hypothesis import Phase, seed

from tests.properties.test_partition_log import PartitionLogs, happened, run
from tests.support import evidence

EXAMPLES_COUNT = 5_000


def main() -> int:
    """Raises what an example failed with."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=EXAMPLES_COUNT)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--as-found", action="store_true", help="do not make it smaller")
    parser.add_argument("--evidence", action="store_true", help="write docs/evidence/")
    arguments = parser.parse_args()
    logging.disable()
    print(f"seed {arguments.seed}, {arguments.examples} examples", flush=True)
    seed(arguments.seed)(PartitionLogs)
    phases = (Phase.generate,) if arguments.as_found else (Phase.generate, Phase.shrink)
    facts = {"seed": arguments.seed, "examples": arguments.examples}
    begun = time.monotonic()
    verdict = "failed"
    try:
        run(arguments.examples, phases=phases)
        verdict = "passed"
    finally:
        if arguments.evidence:
            seconds = round(time.monotonic() - begun)
            what = dict(sorted(happened.items()))
            evidence.write(
                "partition-log", verdict, {**facts, "seconds": seconds, "what happened": what}
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
