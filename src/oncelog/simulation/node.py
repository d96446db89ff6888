"""Simulates one broker of a world: its machine, its process after each start, its supervisor.

A broker here is `oncelog.broker.broker.Broker`, unchanged, in a process that a supervisor restarts
after its death. Each has a disk, a clock and an address of its own; all have one metadata store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from oncelog.broker.broker import Broker
from oncelog.controller.image import ImageDelta, MetadataImage
from oncelog.core.config import BrokerConfig
from oncelog.core.errors import OncelogError
from oncelog.core.ids import TopicPartition
from oncelog.simulation.access.watch import AccessWatch
from oncelog.simulation.agreement.accounts import accounts
from oncelog.simulation.archive import Archive
from oncelog.simulation.audit import Audit, Disagreeing
from oncelog.simulation.audit_ending import Described, changed_by_a_restart, described, late
from oncelog.simulation.disk import SimulatedDisk
from oncelog.simulation.disk_nodes import Tree
from oncelog.simulation.history import BrokerDied, BrokerStarted, Disagreement, Watermarks
from oncelog.simulation.history_cluster import StaleAnswer
from oncelog.simulation.machines import Machines
from oncelog.simulation.observe import ObservedBroker
from oncelog.simulation.oracle.history import RawLog
from oncelog.simulation.process import Process
from oncelog.simulation.replaced import ReplacedCoordinators
from oncelog.simulation.users import broker_settings
from oncelog.storage.checkpoints import parse_partition_metadata
from oncelog.storage.files import CLEAN_SHUTDOWN_NAME, PARTITION_METADATA_NAME

__all__ = ["DATA_DIR", "POWER", "BrokerNode"]

BROKER_PORT: Final = 9092
DATA_DIR: Final = "/data"
AFTER_SYNC_S: Final = 1e-6
"""After this time what waited for an fsync has been done, and no other one has ended."""
POWER: Final = "power"
_WHOLE: Final = TopicPartition("", -1)
"""Stands for a broker as a whole, where a partition is named."""
RESTART_S: Final = (0.05, 3.0)
"""After this time a supervisor starts a broker that has died."""


class BrokerNode:
    """One broker: its machine's disk, its current process, its supervisor."""

    def __init__(self, world: Machines, index: int, settings: Mapping[str, str]) -> None:
        self.world = world
        self.index = index
        self.name = name = f"broker-{index}"
        self.host = host = f"10.0.0.{index + 1}"
        self.disk = SimulatedDisk(world.plan.rng(f"disk of {name}"), world.trace)
        self.archive = Archive(self.disk.peek, self.disk.names, self._has_topic)
        self.audit = Audit(self.disk, self.archive)
        self._disagreed: set[tuple[TopicPartition, str]] = set()
        self._install()
        self.incarnation = -1
        self.losses_count = 0
        """How often its disk has lost anything."""
        self.has_ended_in_order = False
        """Whether its last process was stopped, and its disk had failed nothing that keeps the logs
        from being closed.
        """
        self.process: Process | None = None
        self.broker: Broker | None = None
        self.observed: ObservedBroker | None = None
        self.is_member = index not in world.plan.late
        """Whether the cluster has it: it was started, and is not gone for good."""
        self._is_leaving = False
        self._after_stop: Callable[[], None] | None = None
        self.watch_access: Callable[[], AccessWatch] | None = None
        """Returns what looks at the rights of those who ask it, in a secure run."""
        self.named_by: Callable[[], list[MetadataImage]] = list
        """Returns the metadata from which other brokers answer."""
        self.on_applied: Callable[[ImageDelta], None] = lambda _: None
        """See `ObservedBroker`."""
        self.before_start: list[Callable[[Process], None]] = []
        self.settings = {
            "log.dirs": DATA_DIR,
            **broker_settings(world.plan, f"{host}:{BROKER_PORT}"),
            **settings,
        }
        self._clock_rate = 1.0 + world.plan.rng(f"drift of {name}").uniform(-2e-4, 2e-4)
        self._rng = world.plan.rng(f"supervisor of {name}")
        self._wall_offset_ms = 0.0
        self._seen: dict[TopicPartition, tuple[object, ...]] = {}
        self._awake_since_ms: float | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Return the address for clients."""
        return self.host, BROKER_PORT

    @property
    def living(self) -> Process | None:
        """Return its current process, or None if that has died."""
        process = self.process
        return process if process is not None and process.alive else None

    @property
    def is_serving(self) -> bool:
        """Return whether its current process runs and has finished its start."""
        return self.broker is not None and self.living is not None

    def _install(self) -> None:
        """Create the log directory and make its name durable, as an installation does."""
        installer = self.world.new_process(f"installer of {self.name}", self.host)
        disk = self.disk.of(installer)
        disk.mkdir(DATA_DIR)
        disk.sync_dir("/")
        installer.kill("done")

    # --- life

    def start(self) -> None:
        """Start the next process, unless one runs."""
        if self.living is not None:
            return
        self.is_member = True
        self.incarnation += 1
        name = f"{self.name}.{self.incarnation}"
        process = self.world.new_process(name, self.host, clock_rate=self._clock_rate)
        process.disk = self.disk.of(process)
        process.wall_offset_ms = self._wall_offset_ms
        # First, because the network has to know the cause.
        process.on_death.insert(0, lambda: self._died(process))
        self.process = process
        self.broker = None
        self._seen.clear()
        self._awake_since_ms = None
        process.spawn(self._live(process))
        for tell in self.before_start:
            tell(process)

    def kill(self, cause: str = "kill") -> None:
        """End its process at once."""
        if self.process is not None:
            self.process.kill(cause)

    def lose_power(self) -> None:
        """Kill its process, and lose its disk's unsynced changes."""
        if self.living is not None:
            self.living.kill(POWER)
        else:
            self._lose_unsynced()

    def _lose_unsynced(self) -> None:
        self.losses_count += 1
        lost = self.disk.lose_power(self._rng)
        self.world.coverage.add_losses(lost)
        for line in lost:
            self.world.trace.note("lost", line)

    def lose_disk(self) -> None:
        """Kill its process if it runs, and give it an empty disk."""
        self.kill()
        self.losses_count += 1
        self.disk.replace(None)
        self._install()

    def put_back(self, earlier: Tree) -> None:
        """Kill its process, and put back what its disk held earlier, copied file by file."""
        self.kill()
        self.losses_count += 1
        self.disk.replace(earlier)

    def request_stop(self, then: Callable[[], None] | None = None) -> None:
        """Ask for a clean stop; call `then` when it has stopped, unless it dies otherwise."""
        self._after_stop = then
        if self.broker is not None:
            self.broker.request_stop()

    def request_leave(self) -> None:
        """Ask for a clean stop, for good if the store has no replica of it by then."""
        self._is_leaving = True
        self.request_stop()

    @property
    def is_gone(self) -> bool:
        """Return whether it was in the cluster, and will not be again."""
        return not self.is_member and self.incarnation >= 0

    def _has_topic(self, label: TopicPartition, topic_id: str) -> bool:
        """Return whether the store has the partition of a topic with this id."""
        state = self.world.store.states.get(label)
        return state is not None and state.topic_id == topic_id

    def change_settings(self, changed: Mapping[str, str]) -> None:
        """Have its next process start with these settings."""
        self.settings |= changed

    def jump_wall_clock(self, by_ms: float) -> None:
        """Set its machine's wall clock forward or back."""
        self._wall_offset_ms += by_ms
        if self.process is not None:
            self.process.wall_offset_ms = self._wall_offset_ms

    async def _live(self, process: Process) -> None:
        world = self.world
        broker = self.observed = ObservedBroker(
            BrokerConfig(self.settings),
            world.coverage,
            clock=process.clock,
            disk=process.disk,
            network=process.network,
            store=world.store.of(process),
            rng=process.rng,
            archive=self.archive,
        )
        if self.watch_access is not None:
            broker.access = self.watch_access()
        broker.others, broker.on_applied = self.named_by, self.on_applied
        broker.watch.replaced = ReplacedCoordinators(world.coordinator_epochs, self._told_late)
        try:
            await broker.start()
        except (OncelogError, OSError) as error:
            # The class tells the checkers whether it was the storage.
            process.kill(f"did not start: {type(error).__name__}: {error}")
            return
        self.broker = broker
        world.record(BrokerStarted(world.now_s, self.name, self.incarnation))
        self.audit.began()
        self.audit_all(with_files=True)
        broker.watch.on_synced = self._log_synced
        await broker.wait_until_stop_is_requested()
        failure = broker.stopped_because
        try:
            await broker.stop()
        except OncelogError as error:
            failure = failure or error
        cause = "stop" if failure is None else f"{type(failure).__name__}: {failure}"
        process.kill(cause)

    def _told_late(self, label: TopicPartition, epoch: int, latest: int, asked: str) -> None:
        self.world.record(StaleAnswer(self.world.now_s, self.name, label, epoch, latest, asked))

    def _died(self, process: Process) -> None:
        world = self.world
        self.broker = None
        cause = process.died_because
        is_marked = self.disk.peek(f"{DATA_DIR}/{CLEAN_SHUTDOWN_NAME}") is not None
        has_failed = self.disk.faults.struck_count > 0
        self.has_ended_in_order = cause == "stop" and (is_marked or not has_failed)
        world.record(BrokerDied(world.now_s, self.name, self.incarnation, cause))
        if self.observed is not None:
            moment = self.disk.of(process).died or ""
            watch = self.observed.watch
            world.crashes.append(watch.at_death(world.now_s, self.name, cause, moment))
            self.observed = None
        if cause == POWER:
            # Peers are not notified of their broken connections. A running file operation ends
            # first.
            world.network.process_died(process, silent=True)
            world.scheduler.call_at(world.now_s, None, self._lose_unsynced)
        then, self._after_stop = self._after_stop, None
        if then is not None and cause == "stop":
            then()
        after_s = self._rng.uniform(*RESTART_S)
        if self._is_leaving and cause == "stop" and not world.store.has_replicas(self.index):
            self.is_member = False
            return
        self._is_leaving = False
        world.scheduler.call_after(after_s, None, self.start)

    # --- looking into it

    def has_unsynced_below(self, topic_partition: TopicPartition, offset: int) -> bool:
        """Whether a loss of power may take records below `offset`, which the log contains."""
        if self.broker is None or not self.is_serving:
            return False
        partition = self.broker.partitions.get(*topic_partition)
        return (
            partition is not None
            and partition.log.recovery_point < offset <= partition.log.log_end_offset
        )

    def recovery_points(self) -> list[int]:
        """Return how far each log is synced."""
        broker = self.broker
        return [] if broker is None else [each.log.recovery_point for each in broker.partitions]

    def has_no_open_transaction(self) -> bool:
        """Return whether it serves, and no log has a transaction without its marker."""
        broker = self.broker
        return (
            broker is not None
            and self.is_serving
            and all(p.last_stable_offset == p.state.high_watermark for p in broker.partitions)
        )

    def probe(self) -> None:
        """Record the watermarks that have changed since the last call."""
        broker = self.broker
        if broker is None or not self.is_serving:
            return
        now_s = self.world.now_s
        for partition in broker.partitions:
            log, state = partition.log, partition.state
            if partition.is_being_cut:
                # Its log and its role agree again behind the cut. Until then it serves no client.
                if state.is_leader:
                    name = str(partition.topic_partition)
                    self.find_fault("a leader", [f"{name} leads while its log is being cut"])
                continue
            found = (
                self.incarnation,
                partition.topic_partition,
                state.leader_epoch,
                log.log_start_offset,
                partition.last_stable_offset,
                state.high_watermark,
                log.log_end_offset,
                str(state.topic_id),
                state.is_leader,
            )
            if self._seen.get(partition.topic_partition) != found:
                self._seen[partition.topic_partition] = found
                self.world.record(Watermarks(now_s, self.name, *found))

    def has_folder_of(self, topic_partition: TopicPartition, topic_id: str) -> bool:
        """Return whether its disk has the folder of a partition of the topic with this id."""
        path = f"{DATA_DIR}/{topic_partition}/{PARTITION_METADATA_NAME}"
        return str(parse_partition_metadata(self.disk.peek(path))) == topic_id

    def log_on_disk(self, topic_partition: TopicPartition) -> tuple[int, int]:
        """Return the last leader epoch in a log, by its bytes alone, and its end."""
        path, raw = f"{DATA_DIR}/{topic_partition}", RawLog()
        raw.read(self.disk.names(path), lambda name: self.disk.peek(f"{path}/{name}") or b"")
        last = next(reversed(raw.segments), "0")
        epochs = raw.state.epochs
        end = max(raw.state.end_offset, int(last.removesuffix(".log")))
        return (epochs[-1][0] if epochs else -1), end

    # --- comparing it with its disk

    def audit_all(self, *, with_files: bool = False) -> None:
        """Compare what has changed; with `with_files` all files of all partitions as well."""
        if self.observed is not None and self.is_serving:
            self._disagree(self.audit.look(self.observed, self._awake_since(self.observed)))
            self.find_fault("a count", accounts(self.observed))
            if with_files:
                self._disagree(self.audit.look_at_files(self.observed))

    def _awake_since(self, broker: ObservedBroker) -> float | None:
        """Return since when its process has run without a pause, as seen at these looks."""
        if self.process is None or self.process.frozen:
            self._awake_since_ms = None
        elif self._awake_since_ms is None:
            self._awake_since_ms = broker.transactions.clock.now_ms()
        return self._awake_since_ms

    def _log_synced(self) -> None:
        """Compare last stable offsets once the high watermark has moved.

        A wrong one lasts no longer than the next fsync.
        """
        self.world.scheduler.call_after(AFTER_SYNC_S, None, self.audit_stable_offsets)

    def audit_stable_offsets(self) -> None:
        """Compare the last stable offsets of partitions whose watermarks have moved."""
        if self.observed is not None and self.is_serving:
            self._disagree(self.audit.look_at_stable_offsets(self.observed))

    def describe(self) -> Described:
        """Return what a stop in order must not change."""
        return described(self.observed) if self.observed is not None and self.is_serving else {}

    def compare_with(self, before: Described) -> None:
        """Compare with what was described before a stop in order."""
        self._disagree(changed_by_a_restart(before, self.describe()))

    def audit_late(self, unfinished: frozenset[str]) -> None:
        """Look for what should have expired, and is still as it was before a week."""
        process = self.living
        if self.observed is not None and process is not None and self.is_serving:
            now_ms = process.clock.now_ms()
            self._disagree(late(self.observed, self.disk, DATA_DIR, now_ms, unfinished))

    def find_fault(self, what: str, texts: Iterable[str]) -> None:
        """Record what is wrong with the broker as a whole."""
        self._disagree((_WHOLE, what, text) for text in texts)

    def _disagree(self, found: Iterable[Disagreeing]) -> None:
        """Record each kind of disagreement about a partition once."""
        for topic_partition, what, text in found:
            if (topic_partition, what) not in self._disagreed:
                self._disagreed.add((topic_partition, what))
                now_s = self.world.now_s
                self.world.record(Disagreement(now_s, self.name, topic_partition, what, text))
