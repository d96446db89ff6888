"""Measures the cost of parsing a batch's records, beside an append without parsing.

``python -m bench.records`` prints, for 1,000 records of 100 bytes under each codec, microseconds of
an append as it is, of decompressing, and of the walk of `protocol.record_walk`. Medians of many
turns. storage/validation.py decides by it.
"""

import random
import statistics
import tempfile
import time
from collections.abc import Callable

from rich.console import Console
from rich.table import Table

from oncelog.core.ids import TopicPartition
from oncelog.core.limits import LOOKED_INTO_BYTES_MAX
from oncelog.protocol.batch import CODEC_NAMES, read_header
from oncelog.protocol.record import Record, build_batch, unpack_records
from oncelog.protocol.record_walk import walk_records
from oncelog.runtime import SystemDisk
from oncelog.storage import LogConfig, PartitionLog

RECORDS_COUNT = 1000
RECORD_BYTES = 100
TURNS_COUNT = 60
NOW_MS = 1_700_000_000_000


def text(rng: random.Random) -> list[bytes]:
    """Values of words, which pack about as well as real ones."""
    words = [bytes(rng.choices(range(97, 123), k=rng.randint(3, 9))) for _ in range(300)]
    return [
        b" ".join(rng.choice(words) for _ in range(RECORD_BYTES // 4))[:RECORD_BYTES]
        for _ in range(RECORDS_COUNT)
    ]


def median_us(work: Callable[[], object]) -> float:
    """Microseconds that `work` takes."""
    taken = []
    for _ in range(TURNS_COUNT):
        begin = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken) * 1e6


def measure(codec: str, values: list[bytes], folder: str) -> tuple[int, float, float, float]:
    """(bytes of the batch, append, decompression, walk)."""
    records = [Record(n, NOW_MS + n, b"k%03d" % n, value) for n, value in enumerate(values)]
    batch = build_batch(records, codec=codec)
    header = read_header(batch)
    log = PartitionLog.open(
        SystemDisk(), f"{folder}/{codec}", TopicPartition("t", 0), LogConfig(), NOW_MS
    )
    data = unpack_records(batch, 0, header, LOOKED_INTO_BYTES_MAX)
    found = (
        len(batch),
        median_us(lambda: log.append(bytearray(batch), leader_epoch=0, now_ms=NOW_MS)),
        median_us(lambda: unpack_records(batch, 0, header, LOOKED_INTO_BYTES_MAX)),
        median_us(lambda: walk_records(data, header)),
    )
    log.abandon()
    return found


def main() -> None:
    """Measure and print."""
    table = Table(title=f"{RECORDS_COUNT} records of {RECORD_BYTES} bytes, microseconds")
    for heading in ("codec", "bytes", "append", "decompress", "walk", "times the append"):
        table.add_column(heading, justify="left" if heading == "codec" else "right")
    values = text(random.Random(1))
    with tempfile.TemporaryDirectory() as folder:
        for codec in CODEC_NAMES:
            size, append, unpack, walk = measure(codec, values, folder)
            times = (append + unpack + walk) / append
            row = (codec, size, round(append), round(unpack), round(walk), f"{times:.0f}")
            table.add_row(*map(str, row))
    Console().print(table)


if __name__ == "__main__":
    main()
