"""Whatever happens to a connection: what arrives is the beginning of what was sent.

Random writes, pauses, freezes and faults strike a pair of ends. As long as nothing broke the
connection and both ends are open, everything arrives in the end; memory stays bounded throughout.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.core.limits import SIMULATED_CHUNK_BYTES_MAX, SIMULATED_SOCKET_BUFFER_BYTES
from oncelog.simulation.links import ANYWHERE
from tests.support.examples import examples
from tests.unit.simulation.network_context import Pair, Recorder

HIGH_BYTES = 20_000
WRITE_BYTES_MAX = 50_000

ENDS = st.sampled_from(["client", "server"])
WRITES = st.tuples(
    st.just("write"), ENDS, st.one_of(st.integers(1, 300), st.integers(1, WRITE_BYTES_MAX))
)
WAITS = st.tuples(st.just("wait"), st.sampled_from([0.0, 0.0001, 0.001, 0.01, 0.5, 3.0]))
PAUSES = st.tuples(st.sampled_from(["pause", "resume"]), ENDS)
HARMLESS = st.one_of(
    WRITES,
    WRITES,
    WAITS,
    PAUSES,
    st.tuples(st.sampled_from(["freeze", "thaw"]), ENDS),
    st.tuples(st.just("delay"), st.sampled_from([0.001, 0.1, 2.0])),
    st.tuples(st.just("throttle"), st.sampled_from([1000, 100_000])),
    st.tuples(st.just("heal")),
)
BREAKING = st.one_of(
    st.tuples(st.just("partition"), ENDS, st.booleans()),
    st.tuples(st.just("drop")),
    st.tuples(
        st.just("arm"),
        st.integers(0, 2000),
        st.sampled_from(["to server", "to client"]),
        st.booleans(),
    ),
    st.tuples(st.sampled_from(["close", "abort", "kill", "power off"]), ENDS),
)
SOME = st.lists(HARMLESS, max_size=20)
# A few breaks among much that is harmless: a connection breaks once.
TROUBLE = st.tuples(SOME, BREAKING, SOME, st.one_of(HARMLESS, BREAKING), SOME).map(
    lambda parts: [*parts[0], parts[1], *parts[2], parts[3], *parts[4]]
)


@dataclass
class Run:
    """Takes steps on a pair, and keeps what each end sent."""

    seed: int
    pair: Pair = field(init=False)
    sent: dict[str, bytearray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.pair = Pair(self.seed)
        self.ends = {"client": self.pair.client, "server": self.pair.server}
        self.sent = {name: bytearray() for name in self.ends}
        for end in self.ends.values():
            end.transport.set_write_buffer_limits(high=HIGH_BYTES)
            end.on_data = self.is_reading_check(end)

    def is_reading_check(self, end: Recorder) -> Callable[[], None]:
        def check() -> None:
            assert end.transport.is_reading()
            assert not end.is_lost

        return check

    def take(self, step: tuple[object, ...]) -> None:
        getattr(self, "do_" + str(step[0]).replace(" ", "_"))(*step[1:])
        self.check()

    def check(self) -> None:
        for name, other in (("client", "server"), ("server", "client")):
            assert self.sent[name].startswith(self.ends[other].data)
            assert len(self.ends[name].errors) <= 1
            unsent = self.ends[name].transport.get_write_buffer_size()
            assert unsent <= HIGH_BYTES + WRITE_BYTES_MAX
            kept = len(self.sent[name]) - len(self.ends[other].data)
            if not (self.ends[name].transport.gone or self.ends[other].transport.gone):
                assert kept <= unsent + SIMULATED_SOCKET_BUFFER_BYTES + SIMULATED_CHUNK_BYTES_MAX
        assert self.pair.world.failures == []

    def process(self, name: str):  # type: ignore[no-untyped-def]  # the pair's own
        return self.pair.process_of(self.ends[name])

    def do_write(self, name: str, size: int) -> None:
        end, sent = self.ends[name], self.sent[name]
        process = self.process(name)
        if not end.writable or end.transport.is_closing() or process.frozen:
            return
        first = len(sent) % 251
        data = (bytes(range(251)) * (size // 251 + 2))[first : first + size]
        sent += data
        self.pair.write(end, data)

    def do_wait(self, seconds: float) -> None:
        self.pair.run(seconds)

    def do_pause(self, name: str) -> None:
        self.pair.do(self.ends[name], "pause_reading")

    def do_resume(self, name: str) -> None:
        self.pair.do(self.ends[name], "resume_reading")

    def do_freeze(self, name: str) -> None:
        self.process(name).freeze()

    def do_thaw(self, name: str) -> None:
        self.process(name).thaw()

    def do_delay(self, seconds: float) -> None:
        self.pair.network.delay("client", "server", seconds, seconds / 2)

    def do_throttle(self, bytes_per_s: int) -> None:
        self.pair.network.throttle("client", "server", bytes_per_s)

    def do_heal(self) -> None:
        self.pair.network.heal()

    def do_partition(self, name: str, both: bool) -> None:
        self.pair.network.partition(name, ANYWHERE, both)

    def do_drop(self) -> None:
        self.pair.network.drop_connection(self.process("client").rng, lambda connection: True)

    def do_arm(self, count: int, direction: str, half_open: bool) -> None:
        predicate = self.pair.network.between("client", "server")
        self.pair.network.arm_drop(predicate, count, direction, half_open)  # type: ignore[arg-type]

    def do_close(self, name: str) -> None:
        self.pair.do(self.ends[name], "close")

    def do_abort(self, name: str) -> None:
        self.pair.do(self.ends[name], "abort")

    def do_kill(self, name: str) -> None:
        self.process(name).kill("test")

    def do_power_off(self, name: str) -> None:
        self.pair.network.process_died(self.process(name), silent=True)
        self.process(name).kill("power")

    def calm_down(self) -> None:
        """Lift all faults, let both read on, and wait."""
        self.pair.network.heal()
        for name in self.ends:
            self.process(name).thaw()
            self.do_resume(name)
        self.pair.run(60)
        self.check()


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 1 << 30), st.lists(HARMLESS, max_size=60))
def test_everything_arrives_while_nothing_breaks_the_connection(
    seed: int, steps: list[tuple[object, ...]]
) -> None:
    run = Run(seed)
    for step in steps:
        run.take(step)
    run.calm_down()
    assert run.pair.server.data == run.sent["client"]
    assert run.pair.client.data == run.sent["server"]
    for end in run.ends.values():
        assert end.errors == []
        assert end.writable
        assert end.transport.get_write_buffer_size() == 0


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(0, 1 << 30), TROUBLE)
def test_what_arrives_is_the_beginning_of_what_was_sent(
    seed: int, steps: list[tuple[object, ...]]
) -> None:
    run = Run(seed)
    for step in steps:
        run.take(step)
    run.calm_down()
    # Whoever has sent something since hears of a break.
    for name, other in (("client", "server"), ("server", "client")):
        run.do_write(name, 10)
        run.pair.run(30)
        run.check()
        end, process = run.ends[name], run.process(name)
        if process.alive and not end.is_lost:
            assert run.sent[name] == run.ends[other].data
            assert not run.ends[other].is_lost
    for name, end in run.ends.items():
        process = run.process(name)
        if end.transport.gone and process.alive:
            assert len(end.errors) == 1
