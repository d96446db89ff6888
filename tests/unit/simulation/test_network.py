"""Listening, connecting, and what peers see of a death."""

from __future__ import annotations

import asyncio
import errno

import pytest

from oncelog.core.limits import SIMULATED_SOCKET_BUFFER_BYTES
from tests.unit.simulation.network_context import PORT, Pair, Recorder, World, for_each_seed


def test_connection_made_runs_in_both_processes_before_connect_returns() -> None:
    world = World()
    client_process, server_process = world.process("client"), world.process("server")
    accepted = world.listen(server_process)
    client = world.connect(client_process, server_process)
    assert client.events == ["made"]
    assert client.loop is client_process.loop
    world.run(0.1)
    (server,) = accepted
    assert server.events == ["made"]
    assert server.loop is server_process.loop


def test_connecting_without_a_listener_is_refused_after_a_round_trip() -> None:
    world = World()
    client, server = world.process("client"), world.process("server")
    with pytest.raises(ConnectionRefusedError, match="9092"):
        world.connect(client, server)
    assert 0.0001 < world.scheduler.now_s < 0.1
    assert world.network.counts["connection refused"] == 1


def test_a_closed_listener_refuses_and_keeps_what_it_accepted() -> None:
    pair = Pair()
    pair.world.ask(pair.server_process, pair.world.listeners["server"].close)
    with pytest.raises(ConnectionRefusedError):
        pair.world.connect(pair.client_process, pair.server_process)
    pair.write(pair.client, b"still there")
    pair.run(1)
    assert pair.server.data == b"still there"


def test_an_address_can_be_bound_once() -> None:
    world = World()
    server = world.process("server")
    world.listen(server)
    with pytest.raises(OSError, match="in use") as raised:
        world.listen(server)
    assert raised.value.errno == errno.EADDRINUSE
    world.ask(server, world.listeners["server"].close)
    world.listen(server)


def test_a_foreign_address_cannot_be_bound() -> None:
    world = World()
    server = world.process("server")
    network = world.networks["server"]
    with pytest.raises(OSError, match="not an own address"):
        world.ask(server, lambda: network.listen("10.0.0.77", 0, Recorder))


def test_port_0_gives_the_same_ports_in_every_run() -> None:
    def ports() -> list[int]:
        world = World()
        server = world.process("server")
        found = []
        for _ in range(3):
            world.listen(server, 0)
            ((_host, port),) = world.listeners["server"].addresses
            found.append(port)
        return found

    assert ports() == ports() == [40_000, 40_001, 40_002]


def test_localhost_is_the_own_machine() -> None:
    world = World()
    server = world.process("server")
    accepted = world.listen(server)
    client = Recorder()
    network = world.networks["server"]
    world.ask(server, lambda: network.connect("localhost", PORT, lambda: client))
    world.run(0.1)
    world.call(server, client.transport.write, b"to myself")
    world.run(0.1)
    assert accepted[0].data == b"to myself"


def test_connecting_can_be_cancelled() -> None:
    world = World()
    client_process, server_process = world.process("client"), world.process("server")
    accepted = world.listen(server_process)
    network = world.networks["client"]

    async def give_up() -> None:
        async with asyncio.timeout(0.00001):
            await network.connect(server_process.host, PORT, Recorder)

    with pytest.raises(TimeoutError):
        world.ask(client_process, give_up)
    world.run(1)
    assert accepted == []
    assert not world.network.connections


@for_each_seed
def test_peers_of_a_killed_process_see_the_beginning_of_what_it_wrote_then_a_reset(
    seed: int,
) -> None:
    pair = Pair(seed)
    data = bytes(range(256)) * 400
    pair.write(pair.server, data)
    pair.server_process.kill("test")
    pair.run(1)
    assert data.startswith(pair.client.data)
    (error,) = pair.client.errors
    assert isinstance(error, ConnectionResetError)
    assert pair.server.errors == []
    assert not pair.network.connections


def test_both_all_and_a_part_of_the_last_words_arrive_in_some_runs() -> None:
    arrived = set()
    for seed in range(40):
        pair = Pair(seed)
        pair.write(pair.server, b"last words")
        pair.server_process.kill("test")
        pair.run(1)
        arrived.add(len(pair.client.data))
    assert {0, 10} < arrived


def test_listeners_vanish_with_their_process_and_a_new_one_can_listen_there() -> None:
    pair = Pair()
    pair.server_process.kill("test")
    with pytest.raises(ConnectionRefusedError):
        pair.world.connect(pair.client_process, pair.server_process)
    again = pair.world.process("server", pair.server_process.host)
    accepted = pair.world.listen(again)
    client = pair.world.connect(pair.client_process, again)
    pair.run(0.1)
    pair.world.call(pair.client_process, client.transport.write, b"hello")
    pair.run(0.1)
    assert accepted[0].data == b"hello"


def die_with_machine(pair: Pair) -> None:
    pair.network.process_died(pair.server_process, silent=True)
    pair.server_process.kill("power")


def test_peers_of_a_machine_without_power_do_not_learn_of_it_unless_they_send() -> None:
    pair = Pair()
    die_with_machine(pair)
    pair.run(1000)
    assert pair.client.errors == []
    before_s = pair.world.scheduler.now_s
    pair.write(pair.client, b"are you there?")
    while not pair.client.is_lost:
        pair.run(0.5)
    assert 5 <= pair.world.scheduler.now_s - before_s <= 21
    (error,) = pair.client.errors
    assert isinstance(error, TimeoutError)


def test_a_machine_that_is_back_resets_the_connections_of_before() -> None:
    pair = Pair()
    die_with_machine(pair)
    pair.write(pair.client, b"are you there?")
    pair.run(1)
    assert not pair.client.is_lost
    pair.world.process("server", pair.server_process.host)
    pair.run(4)
    (error,) = pair.client.errors
    assert isinstance(error, ConnectionResetError)


def test_a_machine_that_is_back_resets_a_connection_that_sends_later() -> None:
    pair = Pair()
    die_with_machine(pair)
    pair.world.process("server", pair.server_process.host)
    pair.run(10)
    assert not pair.client.is_lost
    pair.write(pair.client, b"are you there?")
    pair.run(1)
    (error,) = pair.client.errors
    assert isinstance(error, ConnectionResetError)


def test_connecting_to_a_machine_without_power_times_out() -> None:
    pair = Pair()
    die_with_machine(pair)
    before_s = pair.world.scheduler.now_s
    with pytest.raises(TimeoutError):
        pair.world.connect(pair.client_process, pair.server_process)
    assert 3 <= pair.world.scheduler.now_s - before_s <= 10
    assert pair.network.counts["connection timed out"] == 1


def test_a_death_that_is_told_twice_counts_once() -> None:
    pair = Pair()
    die_with_machine(pair)
    assert pair.network.counts["silent death"] == 1
    assert pair.network.counts["death"] == 0


@for_each_seed
def test_a_paused_reader_with_unsent_bytes_gets_the_reset_of_its_dead_peer(seed: int) -> None:
    pair = Pair(seed)
    pair.do(pair.client, "pause_reading")
    pair.do(pair.server, "pause_reading")
    pair.write(pair.client, bytes(1_000_000))
    pair.write(pair.server, bytes(1_000_000))
    pair.run(1)
    pair.server_process.kill("test")
    pair.run(1)
    (error,) = pair.client.errors
    assert isinstance(error, ConnectionResetError)


@for_each_seed
def test_a_reader_resumes_after_the_death_of_a_machine_that_had_filled_its_socket(
    seed: int,
) -> None:
    pair = Pair(seed)
    pair.do(pair.client, "pause_reading")
    data = bytes(range(256)) * 4000
    pair.write(pair.server, data)
    pair.run(1)
    die_with_machine(pair)
    pair.do(pair.client, "resume_reading")
    pair.run(1)
    assert SIMULATED_SOCKET_BUFFER_BYTES <= len(pair.client.data) <= len(data)
    assert data.startswith(pair.client.data)
    assert not pair.client.is_lost
    assert pair.world.failures == []


def test_a_dead_process_can_do_no_more_harm() -> None:
    pair = Pair()
    pair.server_process.kill("test")
    pair.server.transport.write(b"from the dead")
    pair.server.transport.close()
    pair.server.transport.abort()
    pair.run(1)
    assert pair.client.data == b""


def test_a_frozen_process_gets_everything_when_it_thaws() -> None:
    pair = Pair()
    pair.server_process.freeze()
    for index in range(50):
        pair.write(pair.client, b"%d," % index)
        pair.run(1)
    late = pair.world.connect(pair.client_process, pair.server_process)
    pair.do(pair.client, "close")
    pair.run(5)
    assert pair.server.data == b""
    assert late.events == ["made"]
    pair.server_process.thaw()
    pair.run(1)
    assert pair.server.data == b"".join(b"%d," % index for index in range(50))
    assert pair.server.events[-2:] == ["eof", "lost"]


def test_a_connection_to_a_listener_that_closes_meanwhile_is_cut() -> None:
    world = World()
    client_process, server_process = world.process("client"), world.process("server")
    accepted = world.listen(server_process)
    server_process.freeze()
    client = world.connect(client_process, server_process)
    world.network.unbind(world.network.listener_at((server_process.host, PORT)))  # type: ignore[arg-type]
    server_process.thaw()
    world.run(1)
    assert accepted == []
    assert client.is_lost


def test_one_seed_decides_everything() -> None:
    def run(seed: int) -> str:
        pair = Pair(seed)
        for index in range(100):
            pair.write(pair.client, b"x" * index)
            pair.write(pair.server, b"y" * index)
            pair.run(0.001)
        pair.server_process.kill("test")
        pair.run(1)
        return pair.world.trace.digest()

    assert run(1) == run(1) != run(2)
