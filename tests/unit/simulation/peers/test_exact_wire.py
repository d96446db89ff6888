"""A client that uses connections in odd ways, and knows what has to come back."""

from __future__ import annotations

from pathlib import Path

from oncelog.simulation.peers import exact_wire
from oncelog.simulation.peers.raw_peer import RawPeer
from tests.unit.simulation.peers.world import play, stuck, world


def test_every_byte_of_an_answer_is_as_it_has_to_be(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path) as w:
            context = w.context("c1.0", strict=True, pace_ms=40)
            await w.run([exact_wire.run(context)], 4, lambda: w.network.cut_some(0.05))
            assert stuck(w.history.events) == []
            assert w.states() == ["settled"]

    play(story())


def test_answers_in_another_order_are_told(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path) as w:
            client = exact_wire.ExactWire(w.context("c1.0", strict=True))
            asked = client.numbered([client.users(1), client.users(3)])
            peer = await RawPeer.open(client.context)
            for number, question in asked:
                peer.send(question.frame(number))
            assert await peer.wait(2, 1.0)
            client.judge(peer, asked)
            assert stuck(w.history.events) == []
            peer.frames.reverse()
            client.judge(peer, asked)
            assert stuck(w.history.events)
            peer.hang_up()

    play(story())
