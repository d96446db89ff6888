"""What holds of all roles."""

from __future__ import annotations

from pathlib import Path

from oncelog.simulation.history import Event
from oncelog.simulation.peers.roles import ROLES
from tests.unit.simulation.peers.world import play, stuck, world


def test_a_seed_decides_what_the_clients_do(tmp_path: Path) -> None:
    # Without groups: the broker draws member ids from the machine's randomness.
    runs: list[list[Event]] = []

    async def story(folder: Path) -> None:
        async with world(folder, 5) as w:
            await w.create("t", 3)
            roles = ("producer", "transactions", "consumer", "admin", "probe")
            parameters = {"growing": ("t",), "impatience": 0.05}
            clients = [ROLES[role](w.context(role, **parameters)) for role in roles]
            await w.run(clients, 4, trouble=lambda: w.network.cut_some(0.2))
            runs.append(w.history.events)

    for number in range(2):
        play(story(tmp_path / str(number)))
    assert len(runs[0]) > 500
    assert runs[0] == runs[1]


def test_no_client_ends_or_raises_while_there_is_no_broker(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path) as w:
            await w.create("t", 1)
            await w.create("copy", 1)
            turns = 0

            async def vanish() -> None:
                nonlocal turns
                turns += 1
                if turns == 2:
                    factory, w.network.factory = w.network.factory, None
                    w.network.cut_some(1)
                    w.loop.call_later(2, setattr, w.network, "factory", factory)

            await w.run([role(w.context(name)) for name, role in ROLES.items()], 4, vanish)
            assert stuck(w.history.events) == []
            assert w.states().count("settled") == len(ROLES)

    play(story())
