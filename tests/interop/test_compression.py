"""Kafka's readers of compressed batches judge what ours take and refuse behind the first frame."""

import subprocess
import zlib
from pathlib import Path

import pytest

from tests.support.peer import jars, java
from tests.support.peer.kafka import PeerUnavailable
from tests.unit.protocol.test_compression import READ_AS_BY_KAFKA, REFUSED_AS_BY_KAFKA

pytestmark = [pytest.mark.interop, pytest.mark.slow]

PROGRAM = Path(__file__).parents[1] / "support" / "java" / "Decompress.java"
TIMEOUT_S = 60


def test_kafka_reads_the_same_streams_as_we_do(tmp_path: Path) -> None:
    try:
        class_path = jars()
    except PeerUnavailable as reason:
        pytest.skip(f"Apache Kafka's classes cannot be had: {reason}")
    expected = [
        (codec, stream, f"{len(data)} {zlib.crc32(data)}")
        for codec, stream, data in READ_AS_BY_KAFKA
    ]
    expected += [(codec, stream, "refused") for codec, stream in REFUSED_AS_BY_KAFKA]
    arguments = []
    for number, (codec, stream, _) in enumerate(expected):
        path = tmp_path / str(number)
        path.write_bytes(stream)
        arguments += [codec, str(path)]
    command = [java(), "-XX:TieredStopAtLevel=1", "-cp", class_path, str(PROGRAM), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    lines = done.stdout.splitlines()
    for (codec, stream, wanted), line in zip(expected, lines, strict=True):
        assert line.startswith(wanted), (codec, stream[-40:], line)
