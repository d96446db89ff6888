"""kcat, as Debian packages it: -L, -P and -C."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.broker import BrokerProcess

KCAT = shutil.which("kcat") or shutil.which("kafkacat")

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.skipif(KCAT is None, reason="kcat is not installed (Debian: apt install kcat)"),
]


def kcat(*args: str, text: str = "") -> str:
    assert KCAT is not None
    done = subprocess.run(
        [KCAT, *args], input=text, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_kcat_lists_produces_and_consumes(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        servers = broker.bootstrap_servers
        lines = [f"key{number}:value{number}" for number in range(100)]
        kcat("-b", servers, "-P", "-t", "things", "-K:", text="\n".join(lines) + "\n")
        listing = kcat("-b", servers, "-L")
        assert "1 brokers" in listing
        assert 'topic "things" with 1 partitions' in listing
        read = kcat("-b", servers, "-C", "-t", "things", "-o", "beginning", "-e", "-q", "-K:")
        assert read.splitlines() == lines


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_kcat_reads_back_what_it_compressed(tmp_path: Path, codec: str) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        servers = broker.bootstrap_servers
        text = "\n".join("the same words again" for _ in range(500)) + "\n"
        kcat("-b", servers, "-P", "-t", "packed", "-z", codec, text=text)
        assert kcat("-b", servers, "-C", "-t", "packed", "-o", "beginning", "-e", "-q") == text
