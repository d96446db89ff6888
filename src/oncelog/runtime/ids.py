"""Makes random ids from the process's source of randomness.

The programs use the operating system's; the simulation its seed (D3).
"""

import base64
import random
from uuid import UUID

__all__ = ["fresh_kafka_uuid", "fresh_nonce", "fresh_uuid"]


def fresh_uuid(rng: random.Random) -> UUID:
    """A random UUID (version 4)."""
    return UUID(int=rng.getrandbits(128), version=4)


def fresh_kafka_uuid(rng: random.Random) -> str:
    """A random id in Kafka's spelling: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(fresh_uuid(rng).bytes).rstrip(b"=").decode()


def fresh_nonce(rng: random.Random) -> str:
    """A random text of 192 bits that SCRAM may send: 32 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(rng.randbytes(24)).decode()
