"""What happens to the executors of a simulated write stage: deaths, pauses, lost connections."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from oncelog.simulation.history import Event
from oncelog.simulation.process import Process
from oncelog.simulation.world import World
from tests.simulation.spark_executor import Journal

__all__ = ["Faults", "afflict", "dying"]

Count = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Faults:
    """What goes wrong with tasks; probabilities of one task, or of one stage."""

    die: float = 0.0
    freeze: float = 0.0
    slow: float = 0.0
    lose_connection: float = 0.0
    retry: float = 0.0
    """A failed task is started again in the same stage."""
    copy: float = 0.0
    """A second attempt of a task is started beside the first."""
    again: float = 0.0
    """The whole stage is started again under the same producer identity."""
    give_up: float = 0.0
    """The driver cancels the stage while tasks run."""
    late_status: float = 0.0
    """The status tracker does not know of failed tasks yet."""


def afflict(
    process: Process,
    driver: Process | None,
    world: World,
    faults: Faults,
    rng: random.Random,
    count: Count,
) -> None:
    """Let something happen to an executor. `driver` has its turns, if it takes any."""
    if rng.random() < faults.die:
        count("executor died")
        process.kill_after_steps(int(rng.expovariate(1 / 60)), "kill")
    if rng.random() < faults.freeze:
        count("executor froze")
        begin_s, length_s = rng.uniform(0.0, 0.1), rng.expovariate(1 / 3)
        world.scheduler.call_after(begin_s, None, process.freeze)
        world.scheduler.call_after(begin_s + length_s, None, process.thaw)
    if rng.random() < faults.lose_connection:
        count("executor lost a connection")
        world.network.arm_drop(
            world.network.between(process.name, world.broker.host),
            int(rng.expovariate(1 / 800)),
            rng.choice(("to server", "to client")),
            rng.random() < 0.2,
            until_s=world.now_s + 10.0,
        )
    if driver is not None and rng.random() < faults.lose_connection / 2:
        count("executor lost its driver")
        world.network.arm_drop(
            world.network.between(process.name, driver.name),
            int(rng.expovariate(1 / 100)),
            rng.choice(("to server", "to client")),
            until_s=world.now_s + 10.0,
        )


def dying(note: Journal, process: Process, probability: float, count: Count) -> Journal:
    """A journal whose executor may be about to die when it begins to send."""
    dies = process.rng.random() < probability

    def noted(kind: Callable[..., Event], values: tuple[object, ...]) -> None:
        nonlocal dies
        if dies:
            dies = False
            count("executor died as it sent")
            process.kill_after_steps(int(process.rng.expovariate(1 / 20)), "kill")
        note(kind, values)

    return noted
