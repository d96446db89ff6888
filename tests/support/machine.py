"""A machine's disk and the processes that come and go on it."""

import random
from typing import Any

from oncelog.simulation.disk import ProcessDisk, SimulatedDisk
from oncelog.simulation.process import Process
from oncelog.simulation.scheduler import Scheduler


class Machine:
    """One machine: `disk` is what the process that runs now sees."""

    def __init__(self, seed: int = 0, **settings: Any) -> None:
        self.scheduler = Scheduler()
        self.whole = SimulatedDisk(random.Random(seed), **settings)
        self.deaths: list[str] = []
        self.process, self.disk = self.new_process()

    def new_process(self) -> tuple[Process, ProcessDisk]:
        name = f"broker-{len(self.deaths)}"
        process = Process(self.scheduler, name, "10.0.0.1", random.Random(1))
        process.on_death.append(lambda: self.deaths.append(process.died_because))
        return process, self.whole.of(process)

    def restart(self) -> ProcessDisk:
        """Kill the process and start another."""
        self.process.kill("killed")
        self.process, self.disk = self.new_process()
        return self.disk

    def lose_power(self, seed: int = 0, **options: Any) -> list[str]:
        """Lose it, and start again."""
        lost = self.whole.lose_power(random.Random(seed), **options)
        self.process, self.disk = self.new_process()
        return lost

    def paths(self) -> list[str]:
        return [state.path for state in self.whole.files()]
