"""A log directory with two partitions on a simulated machine, which can lose or damage anything."""

import random
import re
from collections.abc import Callable

from oncelog.core.ids import TopicId, TopicPartition
from oncelog.simulation.clock import WALL_START_MS
from oncelog.simulation.disk import FaultKind, Moment
from oncelog.simulation.scheduler import ProcessDied
from oncelog.storage import LogConfig, LogManager, PartitionLog
from tests.support.folders import take_folders
from tests.support.machine import Machine

DIRECTORY = "/data"
KEPT, COMPACTED = TopicPartition("kept", 0), TopicPartition("compacted", 0)
PARTITIONS = (KEPT, COMPACTED)
_FLIPPED = re.compile(rf"{DIRECTORY}/(\w+)-0/(.+): bit \d of byte (\d+) flipped")
_WITHOUT_CHECKSUM = ("leader-epoch-checkpoint", "partition.metadata")


def _is_judged(path: str) -> bool:
    """Whether the file is of a log, and damage to it can be seen."""
    return "-0/" in path and not path.endswith(_WITHOUT_CHECKSUM)


class DataFolder:
    """What a broker's process would hold: open logs in a folder of a machine."""

    def __init__(self, configs: dict[TopicPartition, LogConfig], seed: int) -> None:
        self.configs = configs
        self.topic_ids = {KEPT: TopicId(int=1), COMPACTED: TopicId(int=2)}
        self.machine = Machine(seed)
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self._manager: LogManager | None = None

    @property
    def manager(self) -> LogManager:
        assert self._manager is not None
        return self._manager

    @property
    def now_ms(self) -> int:
        return WALL_START_MS + int(self.machine.scheduler.now_s * 1000)

    def later(self, ms: int) -> None:
        self.machine.scheduler.now_s += ms / 1000

    # ---- the process ----

    def open(self) -> None:
        """Start: open what is there, make what is not."""
        self.logs.clear()
        self._manager = take_folders(DIRECTORY, disk=self.machine.disk)
        by_topic = {partition.topic: config for partition, config in self.configs.items()}
        self._manager.open_logs(lambda topic: by_topic[topic], self.now_ms)
        for partition in PARTITIONS:
            if self._manager.topic_id(partition) not in (None, self.topic_ids[partition]):
                self._manager.delete(partition)  # The power took the rename with it.
            self._create(partition)

    def _create(self, partition: TopicPartition) -> None:
        topic_id, config = self.topic_ids[partition], self.configs[partition]
        self.logs[partition] = self.manager.create(partition, topic_id, config, self.now_ms)

    def make_again(self, partition: TopicPartition) -> None:
        """Delete the topic, and make another one of the same name."""
        self.topic_ids[partition] = TopicId(int=self.topic_ids[partition].int + 2)
        self.manager.delete(partition)
        self._create(partition)

    def close(self) -> None:
        """Stop in order."""
        manager, self._manager = self.manager, None
        manager.close()

    def kill(self) -> None:
        """End the process, if it is not dead already."""
        self._manager = None
        self.machine.restart()

    def lose_power(self, seed: int, rate: float | None) -> None:
        self._manager = None
        self.machine.lose_power(seed, rate=rate)

    # ---- what goes wrong ----

    def dies_in(self, action: Callable[[], None], after: int, moment: Moment) -> bool:
        """Do that and die at its n-th change of the disk; False if it needs fewer."""
        whole, process = self.machine.whole, self.machine.process
        whole.arm_kill(process, after_operations=after, moment=moment)
        try:
            action()
        except ProcessDied:
            return True
        finally:
            whole.disarm_kill(process)
        return False

    def fail(self, kind: FaultKind, after: int, seed: int) -> None:
        """Let one operation of that kind fail, once `after` have gone well."""
        self.machine.whole.faults.fail(kind, random.Random(seed), after=after)

    def fill(self, seed: int) -> None:
        self.machine.whole.faults.fill(random.Random(seed))

    def flip_bit(self, seed: int) -> tuple[TopicPartition, str, int] | None:
        """Flip a bit of what is synced of one log; (partition, name of the file, byte)."""
        what = self.machine.whole.flip_bit(random.Random(seed), _is_judged)
        if what is None:
            return None
        found = _FLIPPED.fullmatch(what)
        assert found is not None, what
        topic, name, position = found.groups()
        return TopicPartition(topic, 0), name, int(position)

    def heal(self) -> None:
        self.machine.whole.faults.heal()
