"""Makes random ids from the process's source of randomness.

The programs use the operating system's; the simulation its seed (D3).
"""

import random
from uuid import UUID

__all__ = ["fresh_uuid"]


def fresh_uuid(rng: random.Random) -> UUID:
    """A random UUID (version 4)."""
    return UUID(int=rng.getrandbits(128), version=4)
