import gzip
import random
from contextlib import suppress

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.errors import ErrorCode, ProtocolError
from oncelog.protocol.batch import CODEC_NAMES
from oncelog.protocol.compression import compress, decompress

PACKED = CODEC_NAMES[1:]


@given(st.binary(max_size=3000), st.integers(1, 200), st.sampled_from(CODEC_NAMES))
def test_what_was_compressed_comes_back(piece: bytes, times: int, codec: str) -> None:
    data = piece * times
    assert decompress(codec, compress(codec, data)) == data


@pytest.mark.parametrize("codec", CODEC_NAMES)
def test_the_limit_is_exact(codec: str) -> None:
    data = bytes(range(256)) * 1000
    packed = compress(codec, data)
    assert decompress(codec, packed, len(data)) == data
    with pytest.raises(ProtocolError) as caught:
        decompress(codec, packed, len(data) - 1)
    assert caught.value.code is ErrorCode.message_too_large


@pytest.mark.parametrize("codec", PACKED)
def test_a_cut_stream_is_corrupt(codec: str) -> None:
    packed = compress(codec, bytes(range(256)) * 1000)
    with pytest.raises(ProtocolError) as caught:
        decompress(codec, packed[: len(packed) // 2])
    assert caught.value.code is ErrorCode.corrupt_message


@given(st.sampled_from(PACKED), st.binary(max_size=100))
def test_random_bytes_are_corrupt_or_harmless(codec: str, data: bytes) -> None:
    with suppress(ProtocolError):
        assert len(decompress(codec, data, 10_000)) <= 10_000


def test_other_writers_of_the_formats_are_understood() -> None:
    data = b"the same bytes again and again " * 5000
    assert decompress("gzip", gzip.compress(data)) == data
    assert decompress("snappy", bytes(cramjam.snappy.compress_raw(data))) == data
    assert decompress("lz4", bytes(cramjam.lz4.compress(data))) == data
    assert decompress("zstd", bytes(cramjam.zstd.compress(data))) == data


def test_our_lz4_frame_is_one_that_java_reads() -> None:
    # The Java reader refuses dependent blocks; the third byte after the magic is the checksum.
    assert compress("lz4", b"x" * 100)[:7].hex() == "04224d18604082"


def test_our_snappy_carries_the_framing_of_snappy_java() -> None:
    assert compress("snappy", b"x")[:8] == b"\x82SNAPPY\x00"


LEVELS = [
    ("gzip", (-1, 1, 9)),
    ("lz4", (1, 3, 9, 12, 17)),
    ("zstd", (-131072, 1, 3, 22)),
    ("snappy", (None,)),
    ("none", (None,)),
]


@pytest.mark.parametrize(("codec", "levels"), LEVELS)
def test_every_level_comes_back(codec: str, levels: tuple[int | None, ...]) -> None:
    noise = random.Random(7).randbytes(200_000)
    for data in (b"", b"x", noise[:65_536], noise, b"the same " * 20_000):
        for level in levels:
            assert decompress(codec, compress(codec, data, level)) == data


@pytest.mark.parametrize(
    ("codec", "worse", "default", "better"),
    [("gzip", 1, -1, 9), ("lz4", 9, 9, 12), ("zstd", -50, 3, 19)],
)
def test_a_higher_level_packs_closer(codec: str, worse: int, default: int, better: int) -> None:
    rng = random.Random(5)
    words = [rng.randbytes(6) for _ in range(400)]
    data = b" ".join(rng.choice(words) for _ in range(20_000))
    assert compress(codec, data) == compress(codec, data, default)
    assert len(compress(codec, data, better)) < len(compress(codec, data, worse))


def test_lz4_blocks_of_any_level_are_in_the_one_frame_that_java_reads() -> None:
    for level in (None, 1, 12):
        packed = compress("lz4", b"x" * 100_000, level)
        assert packed[:7].hex() == "04224d18604082"
        assert packed.count(bytes.fromhex("04224d18")) == 1
