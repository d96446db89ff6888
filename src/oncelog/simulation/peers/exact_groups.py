"""Plays scenes with groups that no other client uses, each with a group of its own.

See `scene`. Parameters: `pace_ms` (200), `scenes_max` (6), those of the scenes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from oncelog.simulation.context import ClientContext
from oncelog.simulation.peers.exact_classic_acts import ClassicScene
from oncelog.simulation.peers.scene import UnsureError, WrongError

__all__ = ["run"]


class _Playable(Protocol):
    async def play(self) -> None: ...

    def close(self) -> None: ...

    def unsure(self, why: str) -> None: ...


_SCENES: Final[tuple[Callable[[ClientContext, str], _Playable], ...]] = (ClassicScene,)


async def run(context: ClientContext) -> None:
    """Play scenes until told to stop, then one more of a kind."""
    number = 0
    is_last, is_sure = False, False
    while not (is_last and is_sure):
        is_last = context.stopping()
        if is_last or number < int(context.get("scenes_max", 6)):
            kind = context.rng.choice(_SCENES)
            is_sure = await _play(kind(context, f"exact-{context.name}-{number}"))
            number += 1
        await context.pause(0, float(context.get("pace_ms", 200)))
    context.progress("settled")


async def _play(scene: _Playable) -> bool:
    """Return whether the scene came to an end, right or wrong."""
    try:
        await scene.play()
    except UnsureError as error:
        scene.unsure(str(error))
        return False
    except WrongError:
        return True
    finally:
        scene.close()
    return True
