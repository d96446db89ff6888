"""Random ids and nonces come from the given source alone (D3)."""

import random
from base64 import urlsafe_b64decode

from oncelog.runtime.ids import fresh_kafka_uuid, fresh_nonce


def test_the_same_source_gives_the_same_ids_and_nonces() -> None:
    for fresh in (fresh_kafka_uuid, fresh_nonce):
        one, other = random.Random(1), random.Random(1)
        assert fresh(one) == fresh(other)
        assert fresh(one) != fresh(random.Random(1))


def test_a_nonce_has_192_bits_and_no_comma() -> None:
    nonce = fresh_nonce(random.SystemRandom())
    assert len(urlsafe_b64decode(nonce)) == 24
    assert nonce.isascii()
    assert nonce.isprintable()
    assert "," not in nonce
