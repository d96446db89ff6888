"""One client's work in a process of its own, so that its CPU time and its memory are its own.

``python -m bench.clients.child CLIENT JOB BOOTSTRAP_SERVERS TOPIC AMOUNT`` prints figures as JSON.
The amount is a count of records to produce or consume, for other jobs the seconds that they take.
CPU time is that of the client while it worked, memory the most that its process ever held, the
interpreter included.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from bench.clients.drivers import DRIVERS, Driver
from bench.clients.jobs import Job
from bench.stats import Figures, percentiles

WARM_COUNT = 2000
WARM_S = 0.5
VALUE = bytes(1000)
SMALL_VALUE = bytes(100)
KIB = 1024


async def bulk(amount: int, work: Callable[[], Awaitable[None]]) -> Figures:
    """Records of 1000 bytes, so many at once."""
    cpu_s, begun_s = time.process_time(), time.perf_counter()
    await work()
    seconds, cpu_s = time.perf_counter() - begun_s, time.process_time() - cpu_s
    return {"MB/s": amount / 1000 / seconds, "CPU s/GB": cpu_s / (amount / 1e6)}


async def one_by_one(seconds: float, work: Callable[[], Awaitable[None]]) -> Figures:
    """Again and again for so long."""
    await _times(WARM_S, work)
    cpu_s = time.process_time()
    times = await _times(seconds, work)
    cpu_s = time.process_time() - cpu_s
    return {**percentiles(times), "CPU us/call": cpu_s / len(times) * 1e6}


async def _times(seconds: float, work: Callable[[], Awaitable[None]]) -> list[float]:
    times = []
    now = time.perf_counter()
    end = now + seconds
    while now < end:
        begun = now
        await work()
        now = time.perf_counter()
        times.append(now - begun)
    return times


async def figures_of(driver: Driver, job: Job, amount: float) -> Figures:
    """What the job takes."""
    await driver.start(job)
    match job:
        case Job.PRODUCE:
            await driver.produce(VALUE, WARM_COUNT)
            found = await bulk(int(amount), lambda: driver.produce(VALUE, int(amount)))
        case Job.CONSUME:
            found = await bulk(int(amount), lambda: driver.consume(int(amount)))
        case Job.LATENCY:
            found = await one_by_one(amount, lambda: driver.send_one(SMALL_VALUE))
        case Job.TRANSACTIONS:
            found = await one_by_one(amount, lambda: driver.transaction(SMALL_VALUE))
    await driver.close()
    return {**found, "peak MB": peak_mb()}


def peak_mb() -> float:
    """The most memory that this process ever held (Linux).

    Not `ru_maxrss`, which begins with what the process held that started it.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    (kib,) = (int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    return kib * KIB / 1e6


def main() -> None:
    """Do what the command line says."""
    client, job, servers, topic, amount = sys.argv[1:]
    driver = DRIVERS[client]()(servers, topic)
    print(json.dumps(asyncio.run(figures_of(driver, Job(job), float(amount)))))


if __name__ == "__main__":
    main()
