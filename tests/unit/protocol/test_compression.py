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
    assert decompress("lz4", lz4_with_all_fields(data)) == data
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


DATA = b"what a batch holds " * 5000
SKIPPABLE = bytes.fromhex("502a4d18") + (5).to_bytes(4, "little") + b"other"
"""A frame of zstd, and of lz4, that holds nothing for the reader."""


def lz4_with_all_fields(data: bytes) -> bytes:
    """A frame with the content's size and checksum, and checksums of its blocks."""
    packer = cramjam.lz4.Compressor(content_checksum=True, block_linked=False)
    packer.compress(data)
    return bytes(packer.finish())


READ_AS_BY_KAFKA: list[tuple[str, bytes, bytes]] = [
    ("gzip", compress("gzip", DATA) + compress("gzip", b"more"), DATA + b"more"),
    ("gzip", compress("gzip", b"a") + compress("gzip", b"") + compress("gzip", b"b"), b"ab"),
    ("gzip", compress("gzip", DATA) + b"no member of gzip" * 4, DATA),
    ("gzip", compress("gzip", DATA) + bytes(64), DATA),
    ("gzip", compress("gzip", DATA) + compress("gzip", b"more")[:18], DATA),
    ("snappy", compress("snappy", DATA) + compress("snappy", b"more"), DATA + b"more"),
    ("snappy", compress("snappy", DATA) + b"abc", DATA),
    ("snappy", compress("snappy", DATA)[:16], b""),
    ("lz4", compress("lz4", DATA) + compress("lz4", b"more"), DATA),
    ("lz4", compress("lz4", DATA) + b"what is no frame", DATA),
    ("lz4", lz4_with_all_fields(DATA), DATA),
    ("lz4", lz4_with_all_fields(DATA)[:-4] + b"else", DATA),
    ("zstd", compress("zstd", DATA) + compress("zstd", b"more"), DATA + b"more"),
    ("zstd", SKIPPABLE + compress("zstd", DATA) + SKIPPABLE, DATA),
]


@pytest.mark.parametrize(("codec", "stream", "expected"), READ_AS_BY_KAFKA)
def test_what_follows_the_first_frame_is_read_as_by_kafka(
    codec: str, stream: bytes, expected: bytes
) -> None:
    assert decompress(codec, stream) == expected


def linked_lz4(data: bytes) -> bytes:
    packer = cramjam.lz4.Compressor(content_checksum=False, block_linked=True)
    packer.compress(data)
    return bytes(packer.finish())


def with_byte(data: bytes, position: int, value: int) -> bytes:
    changed = bytearray(data)
    changed[position] = value
    return bytes(changed)


REFUSED_AS_BY_KAFKA: list[tuple[str, bytes]] = [
    ("gzip", compress("gzip", DATA) + compress("gzip", DATA)[:-9]),
    ("snappy", compress("snappy", DATA) + b"abcd"),
    ("snappy", compress("snappy", DATA) + compress("snappy", b"more")[:12]),
    ("lz4", SKIPPABLE + compress("lz4", DATA)),
    ("lz4", linked_lz4(DATA)),
    ("lz4", with_byte(compress("lz4", DATA), 6, 0)),
    ("lz4", with_byte(compress("lz4", DATA), 4, 0x61)),
    ("zstd", compress("zstd", DATA) + b"no frame"),
]


@pytest.mark.parametrize(("codec", "stream"), REFUSED_AS_BY_KAFKA)
def test_what_kafka_does_not_read_is_corrupt(codec: str, stream: bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        decompress(codec, stream)
    assert caught.value.code is ErrorCode.corrupt_message


@pytest.mark.parametrize("codec", ["gzip", "snappy", "zstd"])
def test_the_limit_counts_all_frames_together(codec: str) -> None:
    stream = compress(codec, DATA) * 3
    assert len(decompress(codec, stream, 3 * len(DATA))) == 3 * len(DATA)
    with pytest.raises(ProtocolError) as caught:
        decompress(codec, stream, 3 * len(DATA) - 1)
    assert caught.value.code is ErrorCode.message_too_large


def test_the_wrong_header_checksum_of_old_clients_can_be_ignored() -> None:
    frame = with_byte(compress("lz4", DATA), 6, 0)
    assert decompress("lz4", frame, check_lz4_header=False) == DATA


def test_a_cut_frame_of_zstd_behind_a_whole_one_is_corrupt() -> None:
    """Java's reader ends there without an error, wherever in the frame that is."""
    with pytest.raises(ProtocolError):
        decompress("zstd", compress("zstd", DATA) + compress("zstd", DATA)[:7])
