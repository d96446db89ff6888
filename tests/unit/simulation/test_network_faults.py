"""Faults of the network: what is late, what is kept, what breaks, and who hears of it."""

from __future__ import annotations

import random

import pytest

from oncelog.simulation.links import ANYWHERE
from oncelog.simulation.network_faults import Direction
from tests.unit.simulation.network_context import Pair, Recorder, for_each_seed


def now_s(pair: Pair) -> float:
    return pair.world.scheduler.now_s


def test_a_delay_makes_bytes_late_and_ends_by_itself() -> None:
    pair = Pair()
    pair.network.delay("client", "server", extra_s=0.5, jitter_s=0.2, until_s=now_s(pair) + 2)
    pair.write(pair.client, b"slow")
    pair.run(0.49)
    assert pair.server.data == b""
    pair.run(0.3)
    assert pair.server.data == b"slow"
    pair.run(2)
    pair.write(pair.client, b", fast")
    pair.run(0.01)
    assert pair.server.data == b"slow, fast"
    assert pair.network.counts["delay"] == 1


def test_a_throttle_delivers_bit_by_bit_and_what_is_left_at_once_when_it_is_lifted() -> None:
    pair = Pair()
    handle = pair.network.throttle("client", "server", 10_000)
    data = bytes(range(256)) * 1000
    pair.write(pair.client, data)
    for second in range(1, 6):
        pair.run(1)
        assert abs(len(pair.server.data) - second * 10_000) < 1000
    handle.lift()
    handle.lift()
    pair.run(0.1)
    assert pair.server.data == data


@for_each_seed
def test_bytes_written_in_a_partition_arrive_after_it(seed: int) -> None:
    pair = Pair(seed)
    handle = pair.network.partition("client", "server")
    for index in range(20):
        pair.write(pair.client, b"%d," % index)
        pair.write(pair.server, b"%d;" % index)
        pair.run(0.2)
    assert pair.server.data == pair.client.data == b""
    handle.lift()
    pair.write(pair.client, b"end")
    pair.run(3)
    assert pair.server.data == b"".join(b"%d," % index for index in range(20)) + b"end"
    assert pair.client.data == b"".join(b"%d;" % index for index in range(20))
    assert pair.network.counts["partition"] == 1
    assert pair.network.counts["bytes held by a partition"] == 2


def test_a_writer_in_a_long_partition_gives_up_and_its_peer_does_not_learn_of_it() -> None:
    pair = Pair()
    handle = pair.network.partition("client", "server")
    pair.write(pair.client, b"anybody?")
    pair.run(4.9)
    assert pair.client.errors == []
    pair.run(16)
    (error,) = pair.client.errors
    assert isinstance(error, TimeoutError)
    handle.lift()
    pair.run(100)
    assert pair.server.events == ["made"]
    pair.write(pair.server, b"hello")
    pair.run(1)
    (error,) = pair.server.errors
    assert isinstance(error, ConnectionResetError)


def test_an_idle_connection_outlives_a_partition() -> None:
    pair = Pair()
    pair.network.partition("client", "server", until_s=now_s(pair) + 1000)
    pair.run(1001)
    pair.write(pair.client, b"still here")
    pair.run(1)
    assert pair.server.data == b"still here"


def test_a_one_way_partition_keeps_bytes_there_and_acknowledgements_back() -> None:
    pair = Pair()
    pair.network.partition("server", "client", both=False)
    pair.write(pair.client, b"request")
    pair.run(1)
    assert pair.server.data == b"request"
    assert pair.client.transport.get_write_buffer_size() == len(b"request")
    pair.write(pair.server, b"reply")
    pair.run(1)
    assert pair.client.data == b""
    pair.network.heal()
    pair.run(3)
    assert pair.client.data == b"reply"
    assert pair.client.transport.get_write_buffer_size() == 0
    assert pair.network.counts["one-way partition"] == 1


def test_a_writer_without_acknowledgements_gives_up_though_its_bytes_arrived() -> None:
    pair = Pair()
    pair.network.partition("server", "client", both=False)
    pair.write(pair.client, b"request")
    pair.run(21)
    assert pair.server.data == b"request"
    (error,) = pair.client.errors
    assert isinstance(error, TimeoutError)
    assert pair.network.counts["tcp timeout"] == 1


def test_connecting_in_a_partition_times_out_or_succeeds_after_it() -> None:
    pair = Pair()
    pair.network.partition("client", ANYWHERE, until_s=now_s(pair) + 2)
    begin_s = now_s(pair)
    pair.world.connect(pair.client_process, pair.server_process)
    assert 2 < now_s(pair) - begin_s < 4
    pair.network.partition("server", ANYWHERE)
    begin_s = now_s(pair)
    with pytest.raises(TimeoutError):
        pair.world.connect(pair.client_process, pair.server_process)
    assert 3 <= now_s(pair) - begin_s <= 10


def test_what_was_closed_in_a_partition_arrives_after_it() -> None:
    pair = Pair()
    handle = pair.network.partition("client", "server")
    pair.write(pair.client, b"bye")
    pair.do(pair.client, "close")
    pair.run(100)
    assert pair.client.errors == [None]
    assert pair.server.events == ["made"]
    handle.lift()
    pair.run(3)
    assert pair.server.data == b"bye"
    assert pair.server.errors == [None]


@for_each_seed
def test_a_dropped_connection_resets_both_ends(seed: int) -> None:
    pair = Pair(seed)
    data = bytes(range(256)) * 500
    pair.write(pair.client, data)
    rng = random.Random(seed)
    assert pair.network.drop_connection(rng, pair.network.between("client", "10.0.0.2"))
    pair.write(pair.client, b"too late")
    pair.run(1)
    assert data.startswith(pair.server.data)
    for end in (pair.client, pair.server):
        (error,) = end.errors
        assert isinstance(error, ConnectionResetError)
    assert pair.network.drop_connection(rng, lambda connection: True) is None
    assert pair.network.counts["drop"] == 1


def test_only_connections_that_fit_are_dropped() -> None:
    pair = Pair()
    rng = random.Random(0)
    assert pair.network.drop_connection(rng, pair.network.between("client", "other")) is None
    assert not pair.client.is_lost


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("direction", ["to server", "to client"])
def test_an_armed_drop_lets_exactly_so_many_bytes_arrive(seed: int, direction: Direction) -> None:
    pair = Pair(seed)
    count = random.Random(seed).randrange(0, 3000)
    writer, reader = pair.client, pair.server
    if direction == "to client":
        writer, reader = reader, writer
    pair.write(writer, b"before")
    pair.run(1)
    pair.network.arm_drop(pair.network.between("client", "server"), count, direction)
    data = bytes(range(256)) * 12
    for start in range(0, len(data), 100):
        pair.write(writer, data[start : start + 100])
        pair.write(reader, b"the other way")
        pair.run(0.0001)
    pair.run(1)
    assert reader.data == b"before" + data[:count]
    for end in (pair.client, pair.server):
        (error,) = end.errors
        assert isinstance(error, ConnectionResetError)
    assert pair.network.counts["drop at a byte"] == 1


def test_an_armed_drop_strikes_right_after_its_last_byte() -> None:
    pair = Pair()
    pair.network.arm_drop(lambda connection: True, 7, "to server")
    pair.write(pair.client, b"request")
    pair.run(1)
    assert pair.server.data == b"request"
    assert pair.server.is_lost
    assert pair.client.is_lost


def test_an_armed_drop_waits_for_a_connection_that_lasts_until_it_strikes() -> None:
    pair = Pair()
    pair.network.arm_drop(pair.network.between("client", "server"), 5, "to server")
    pair.do(pair.client, "close")
    pair.run(1)
    client = pair.world.connect(pair.client_process, pair.server_process)
    pair.world.call(pair.client_process, client.transport.write, b"request")
    pair.run(1)
    assert isinstance(client.errors[0], ConnectionResetError)


def test_an_armed_drop_can_be_lifted() -> None:
    pair = Pair()
    handle = pair.network.arm_drop(lambda connection: True, 3, "to server")
    pair.write(pair.client, b"ab")
    pair.run(1)
    handle.lift()
    pair.write(pair.client, b"cdef")
    pair.run(1)
    assert pair.server.data == b"abcdef"
    assert not pair.client.is_lost


def half_open(seed: int) -> tuple[Pair, Recorder, Recorder]:
    """A connection of which only the first end returned knows that it is broken."""
    pair = Pair(seed)
    pair.network.arm_drop(lambda connection: True, 7, "to server", half_open=True)
    pair.write(pair.client, b"request")
    pair.run(1)
    ends = (pair.client, pair.server)
    aware = next(end for end in ends if end.is_lost)
    unaware = next(end for end in ends if not end.is_lost)
    return pair, aware, unaware


@for_each_seed
def test_a_half_open_connection_is_lost_at_the_other_end_when_that_sends(seed: int) -> None:
    pair, aware, unaware = half_open(seed)
    assert pair.server.data == b"request"
    pair.run(1000)
    assert unaware.errors == []
    received = bytes(aware.data)
    pair.write(unaware, b"more")
    pair.run(21)
    (error,) = unaware.errors
    assert isinstance(error, ConnectionResetError | TimeoutError)
    assert aware.data == received
    assert pair.network.counts["half-open"] == 1
    assert not pair.network.connections


def test_either_end_of_a_half_open_connection_may_be_the_one_that_knows() -> None:
    kinds = set()
    for seed in range(40):
        pair, aware, unaware = half_open(seed)
        pair.write(unaware, b"more")
        pair.run(21)
        kinds.add((aware is pair.client, type(unaware.errors[0])))
    assert len(kinds) == 4


def test_healing_lifts_everything() -> None:
    pair = Pair()
    pair.network.partition("client", ANYWHERE)
    pair.network.delay("client", "server", 100.0)
    pair.network.throttle("client", "server", 1.0)
    armed = pair.network.arm_drop(lambda connection: True, 0, "to server")
    pair.write(pair.client, b"x" * 100_000)
    pair.run(1)
    pair.network.heal()
    assert not armed.active
    pair.run(5)
    assert len(pair.server.data) == 100_000
    pair.network.heal()


def test_a_fault_that_was_lifted_is_not_lifted_again_by_its_end() -> None:
    pair = Pair()
    handle = pair.network.partition("client", "server", until_s=now_s(pair) + 1)
    handle.lift()
    pair.network.partition("client", "server")
    pair.run(2)
    pair.write(pair.client, b"kept")
    pair.run(1)
    assert pair.server.data == b""


def test_a_fault_that_names_a_process_strikes_its_machine_once_the_process_is_there() -> None:
    pair = Pair()
    pair.network.partition("client", "server.1")
    pair.write(pair.client, b"before")
    pair.run(1)
    pair.world.process("server.1", pair.server_process.host)
    pair.write(pair.client, b", behind")
    pair.run(1)
    assert pair.server.data == b"before"
    pair.run(20)
    assert isinstance(pair.client.errors[0], TimeoutError)
