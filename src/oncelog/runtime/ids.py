"""Random ids, drawn from a source that the process is given.

The shipped programs draw from the operating system's; the simulation from its seed (D3).
"""

import random
from uuid import UUID

__all__ = ["fresh_uuid"]


def fresh_uuid(rng: random.Random) -> UUID:
    """A random UUID (version 4)."""
    return UUID(int=rng.getrandbits(128), version=4)
