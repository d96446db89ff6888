"""Groups whose every answer is known before it comes."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncelog.core.errors import ErrorCode
from oncelog.simulation.history import BrokerDied, Fault
from oncelog.simulation.peers import exact_groups
from oncelog.simulation.peers.exact_classic_acts import ClassicScene
from oncelog.simulation.peers.scene import Scene, UnsureError, WrongError
from tests.unit.simulation.peers.world import SETTINGS, World, play, stuck, world

OPTIONS = {
    "topics": ["t", "u"],
    "acts": 6,
    "initial_delay_ms": 50,
    "pace_ms": 20,
    "expects_answers": True,
}


async def _topics(w: World) -> None:
    await w.create("t", 3)
    await w.create("u", 2)


@pytest.mark.parametrize("sweep_ms", [600_000, 400])
def test_a_sound_coordinator_answers_as_every_model_expects(tmp_path: Path, sweep_ms: int) -> None:
    settings = SETTINGS | {"offsets.retention.check.interval.ms": str(sweep_ms)}

    async def story() -> None:
        async with world(tmp_path, settings=settings) as w:
            await _topics(w)
            context = w.context("c1", **OPTIONS, sweep_ms=sweep_ms, scenes_max=20)
            await w.run([exact_groups.run(context)], seconds=6)
            assert not stuck(w.history.events)

    play(story())


def test_an_answer_of_another_generation_is_told(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path) as w:
            await _topics(w)
            scene = ClassicScene(w.context("c1", **OPTIONS), "g")
            await scene._found()
            await scene._verify()
            scene.generation += 1
            with pytest.raises(WrongError):
                await scene._verify()
            scene.close()
            assert stuck(w.history.events)

    play(story())


def test_losses_that_the_settings_allow_excuse_a_wrong_answer(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path) as w:
            context = w.context("c1", flushed=True)
            w.history.record(BrokerDied(w.loop.time(), "broker-0", 0, "power"))
            with pytest.raises(WrongError):
                Scene(context, "g").expect(False, "a wrong answer")
            assert stuck(w.history.events)
            before = len(w.history)
            with pytest.raises(WrongError):
                Scene(w.context("c1"), "g").expect(False, "a wrong answer")
            w.history.record(Fault(w.loop.time(), "", "flip-bit", "a log"))
            with pytest.raises(WrongError):
                Scene(context, "g").expect(False, "a wrong answer")
            assert not stuck(w.history.events[before:])

    play(story())


def test_a_death_excuses_what_was_in_memory_only(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path) as w:
            scene = Scene(w.context("c1"), "g")
            scene.begin_volatile()
            w.history.record(BrokerDied(w.loop.time(), "broker-0", 0, "kill"))
            with pytest.raises(UnsureError):
                scene.expect(False, "a wrong answer")
            scene.end_volatile()
            with pytest.raises(WrongError):
                scene.expect(False, "a wrong answer")

    play(story())


def test_a_coordinator_that_is_away_without_a_fault_is_told(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path) as w:
            scene = Scene(w.context("c1", expects_answers=True), "g")
            with pytest.raises(UnsureError):
                scene.sure(ErrorCode.not_coordinator)
            scene.unsure("got not_coordinator")
            assert stuck(w.history.events)

    play(story())
