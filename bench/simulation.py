"""How fast the simulation is: ``python -m bench.simulation``.

Two figures, in CPU time of the process, which other people's load on the machine hardly touches:

- *ratio*: virtual seconds to seconds for the time in which clients work and faults strike, with one
  broker and ten clients of all kinds; what settles afterwards is left out, as it is mostly idle.
- *runs*: whole runs of 30 virtual seconds with faults, judged, as `oncelog simulate` draws them.
"""

import gc
import statistics
import sys
import time
from dataclasses import replace

from rich.console import Console
from rich.table import Table

from oncelog.simulation.draw import draw_plan
from oncelog.simulation.plan import Plan
from oncelog.simulation.roles import ROLES
from oncelog.simulation.run import SimulationRun, execute, undisturbed

CLIENTS = 10
DURATION_S = 30.0
ROUNDS = 12


def plan_of_ten(seed: int) -> Plan:
    """Ten clients, drawn from several seeds, and the faults of the first."""
    plan = draw_plan(seed, "everything", DURATION_S)
    clients = list(plan.clients)
    other = seed
    while len(clients) < CLIENTS:
        other += 1000
        clients += draw_plan(other, "everything", DURATION_S).clients
    renamed = [replace(client, id=f"c{index}") for index, client in enumerate(clients[:CLIENTS])]
    names = {topic.name for topic in plan.topics}
    renamed = [
        replace(client, parameters=_within(dict(client.parameters), names)) for client in renamed
    ]
    return replace(plan, clients=tuple(renamed), final_restarts=())


def _within(parameters: dict[str, object], names: set[str]) -> dict[str, object]:
    for key in ("topics", "sources"):
        given = parameters.get(key)
        if isinstance(given, dict):
            parameters[key] = {name: n for name, n in given.items() if name in names}
        elif isinstance(given, list):
            parameters[key] = [name for name in given if name in names]
    return parameters


def ratio(seed: int) -> float:
    """Virtual seconds to CPU seconds while ten clients work."""
    run = SimulationRun(plan_of_ten(seed), ROLES)
    with undisturbed(run.world):
        run.begin()
        began = time.process_time()
        run.world.scheduler.run_until(run.started_s + DURATION_S)
        return DURATION_S / (time.process_time() - began)


def cpu_s_of_a_run(seed: int) -> float:
    """CPU seconds of a whole run, from its plan to its verdict."""
    began = time.process_time()
    execute(draw_plan(seed, None, DURATION_S), ROLES)
    return time.process_time() - began


def main() -> int:
    """Print both."""
    execute(draw_plan(0), ROLES)
    gc.collect()
    gc.freeze()
    ratios = sorted(ratio(seed) for seed in range(ROUNDS))
    costs = [cpu_s_of_a_run(seed) for seed in range(4 * ROUNDS)]
    table = Table("", "median", "from", "to")
    table.add_row(
        "virtual seconds per CPU second, 10 clients",
        *(f"{value:.1f}" for value in (statistics.median(ratios), ratios[0], ratios[-1])),
    )
    per_minute = [120 / cost for cost in costs]
    table.add_row(
        "runs of 30 s per minute on 2 cores",
        f"{120 / statistics.mean(costs):.0f} (mean)",
        f"{min(per_minute):.0f}",
        f"{max(per_minute):.0f}",
    )
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
