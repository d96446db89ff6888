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
from statistics import median

from bench.clients.drivers import DRIVERS, Driver, Made
from bench.clients.jobs import PARTITIONS, TIMEOUT_S, Job
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


async def as_a_member(driver: Driver, group: str, count: int) -> Figures:
    """Read so many records as the only member of a group, from its first assignment on."""
    await driver.join(group)
    await _until_held([driver], [PARTITIONS])
    # That may have taken a record.
    return await bulk(count, lambda: driver.consume(count - 1))


async def rebalances(made: Callable[[], Driver], topic: str, seconds: float) -> Figures:
    """Form a group of one, have a second member join, and the first leave, again and again."""
    joined: list[float] = []
    left: list[float] = []
    end = time.perf_counter() + seconds
    while not joined or time.perf_counter() < end:
        first, second = made(), made()
        group = f"{topic}-{len(joined)}"
        await first.join(group)
        await _until_held([first], [PARTITIONS])
        begun = time.perf_counter()
        await second.join(group)
        await _until_held([first, second], [PARTITIONS // 2] * 2)
        both = time.perf_counter()
        await first.close()
        await _until_held([second], [PARTITIONS])
        left.append(time.perf_counter() - both)
        joined.append(both - begun)
        await second.close()
    return {"joined, p50 ms": median(joined) * 1000, "left, p50 ms": median(left) * 1000}


async def _until_held(members: list[Driver], wanted: list[int]) -> None:
    """Return when the members have so many partitions. Raises `TimeoutError`."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        if [await member.held_count() for member in members] == wanted:
            return
    raise TimeoutError("the group did not become stable")


async def figures_of(made: Made, servers: str, topic: str, job: Job, amount: float) -> Figures:
    """What the job takes."""
    if job is Job.REBALANCE:
        found = await rebalances(lambda: made(servers, topic), topic, amount)
        return {**found, "peak MB": peak_mb()}
    driver = made(servers, topic)
    if job is not Job.GROUP:  # A member opens its consumer when it joins.
        await driver.start(job)
    match job:
        case Job.PRODUCE:
            await driver.produce(VALUE, WARM_COUNT)
            found = await bulk(int(amount), lambda: driver.produce(VALUE, int(amount)))
        case Job.CONSUME:
            found = await bulk(int(amount), lambda: driver.consume(int(amount)))
        case Job.GROUP:
            found = await as_a_member(driver, topic, int(amount))
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
    made = DRIVERS[client]()
    print(json.dumps(asyncio.run(figures_of(made, servers, topic, Job(job), float(amount)))))


if __name__ == "__main__":
    main()
