"""Damaged bytes: every parser answers them with a ProtocolError or a value, nothing else."""

from collections.abc import Callable
from random import Random

from oncelog.core.errors import ProtocolError

HUGE = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")


def survives(parse: Callable[[bytes], object], data: bytes) -> bool:
    """Whether the bytes parsed; any exception but a ProtocolError escapes and fails the test."""
    try:
        parse(data)
    except ProtocolError:
        return False
    return True


def check_damage(
    parse: Callable[[bytes], object], data: bytes, seed: int, rounds: int = 60
) -> None:
    """Feed every prefix (up to a bound) and random mutations of the bytes to the parser."""
    assert survives(parse, data)
    random = Random(seed)
    cuts = range(len(data)) if len(data) < 120 else random.sample(range(len(data)), 120)
    for cut in cuts:
        survives(parse, data[:cut])
    for _ in range(rounds):
        damaged = bytearray(data)
        for _ in range(random.randint(1, 4)):
            position = random.randrange(len(damaged) + 1)
            kind = random.randrange(4)
            if kind == 0 and position < len(damaged):
                damaged[position] = random.randrange(256)
            elif kind == 1:
                damaged[position : position + 4] = random.choice(HUGE)
            elif kind == 2:
                damaged[position:position] = random.randbytes(random.randint(1, 8))
            else:
                del damaged[position : position + random.randint(1, 8)]
        survives(parse, bytes(damaged))
