"""Whose randomness an authentication has."""

import pickle
import random

from oncelog.core.secret import Secret
from oncelog.peer.sasl import Sasl


def first(sasl: Sasl) -> bytes:
    return sasl.exchange().first()


def test_nonces_are_drawn_from_the_given_source_or_from_the_system() -> None:
    given = [Sasl("SCRAM-SHA-256", "u", Secret("p"), rng=random.Random(1)) for _ in range(2)]
    assert first(given[0]) == first(given[1])
    assert first(given[0]) != first(given[0])
    own = Sasl("SCRAM-SHA-256", "u", Secret("p"))
    assert isinstance(own.draws, random.SystemRandom)
    assert first(own) != first(own)


def test_the_source_is_no_part_of_what_is_compared_shown_or_sent() -> None:
    """Settings go to Spark's executors, and the system's randomness cannot."""
    own = Sasl("PLAIN", "u", Secret("p"))
    seeded = Sasl("PLAIN", "u", Secret("p"), rng=random.Random(1))
    assert own == seeded
    assert repr(own) == repr(seeded)
    assert pickle.loads(pickle.dumps(own)) == own
