"""Measures fresh processes: start, idle cost, first seconds of load, memory growth.

Every round starts each system again. A virtual machine runs its first seconds interpreted, so these
figures are far from those of a warm broker.
"""

import resource
import socket
import time
from collections.abc import Callable

from bench.gauges import cpu_time, resident_mb
from bench.loads import SMALL, Bulk, OneRecord, TinyTransactions
from bench.results import Results
from bench.stats import Figures
from bench.systems import System
from bench.work import TIMEOUT_S, Load, flush, fresh_topic, producer
from tests.support.peer.child import METADATA_REQUEST

SETTLE_S = 1.0
IDLE_S = 2.0
COLD: dict[str, Load] = {
    "cold-latency": OneRecord,
    "cold-txn": TinyTransactions,
    "cold-16k": Bulk(1000, 100, SMALL),
}


def live(system: System, results: Results, wanted: Callable[[str], bool]) -> None:
    """One life of one system, from its start; only wanted rows are measured."""
    seconds = system.start()
    started = cpu_time(system.pid)
    results.add("start", system.name, {"seconds": seconds, "CPU s": started.total_s})
    if wanted("idle"):
        results.add("idle", system.name, idle(system))
    for key, load in COLD.items():
        if wanted(key):
            results.add(key, system.name, first_window(system, load))
    # Connections first: each asks for Metadata of all topics, which 1,000 partitions make large.
    for key, grow in (("connections", many_connections), ("partitions", many_partitions)):
        if wanted(key):
            results.add(key, system.name, grow(system))


def idle(system: System) -> Figures:
    """Measure memory, CPU and system calls without any request."""
    time.sleep(SETTLE_S)
    before = cpu_time(system.pid)
    time.sleep(IDLE_S)
    used = cpu_time(system.pid).since(before)
    return {"memory MB": resident_mb(system.pid), "CPU ms/s": used.total_s / IDLE_S * 1000}


def first_window(system: System, load: Load) -> Figures:
    """The figures of a load's first window. Nothing is cleared up: the process ends soon."""
    work = load(system)
    work.prepare()
    return work.run().figures


def many_partitions(system: System) -> Figures:
    """1,000 partitions: seconds to create and write to them all, and the memory afterwards."""
    before = resident_mb(system.pid)
    begun = time.perf_counter()
    topic = fresh_topic(system, 1000)
    client = producer(system, **{"linger.ms": 50})
    for number in range(1000):
        client.produce(topic, bytes(100), partition=number)
    flush(client)
    return {
        "seconds": time.perf_counter() - begun,
        "memory grown by MB": max(0.1, resident_mb(system.pid) - before),
    }


def many_connections(system: System, count: int = 1000) -> Figures:
    """1,000 connections that stay: seconds until each had an answer, and the memory afterwards."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + 200
    if soft < wanted and (hard == resource.RLIM_INFINITY or hard >= wanted):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    host, _, port = system.bootstrap_servers.rpartition(":")
    before = resident_mb(system.pid)
    begun = time.perf_counter()
    connections: list[socket.socket] = []
    try:
        for _ in range(count):
            connections.append(socket.create_connection((host, int(port)), TIMEOUT_S))
        for connection in connections:
            connection.sendall(METADATA_REQUEST)
        for connection in connections:
            if not connection.recv(4096):
                raise RuntimeError("a connection was closed instead of answered")
        seconds = time.perf_counter() - begun
        grown = resident_mb(system.pid) - before
    finally:
        for connection in connections:
            connection.close()
    return {"seconds": seconds, "memory grown by MB": max(0.1, grown)}
