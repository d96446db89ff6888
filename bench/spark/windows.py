"""Runs one window of a row against a broker, and returns its figures."""

from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from bench.spark import latency, queries
from bench.spark.inputs import Inputs, topics, touch
from bench.spark.rows import NOOP, OURS, STREAMS, Copy, Job, Sink, Small, Source, Visible
from bench.spark.session import (
    dropped,
    generated,
    read_by_spark,
    read_by_us,
    written_by_spark,
    written_by_us,
)
from bench.spark.streams import StreamsClient
from bench.stats import Figures
from bench.systems import System
from bench.work import PARTITIONS

STREAMS_COMMIT_MS_MIN = 100
"""What a trigger as soon as possible is in Kafka Streams: its default under exactly once."""


@dataclass
class Bench:
    """What windows work with; lives through the whole run."""

    spark: SparkSession
    streams: StreamsClient
    inputs: Inputs = field(default_factory=Inputs)


def measure(bench: Bench, job: Job, peer: str, system: System) -> Figures:
    """Do one window's work. The first figure tells whether a peer is warm."""
    match job:
        case Sink():
            return sink(bench, job, peer, system)
        case Source():
            return source(bench, job, peer, system)
        case Copy():
            return copy(bench, job, peer, system)
        case Small():
            return small(bench, job, peer, system)
        case Visible():
            return visible(bench, job, peer, system)


def sink(bench: Bench, job: Sink, peer: str, system: System) -> Figures:
    touch(system, job.rows * job.batches * job.value_bytes)
    rows = generated(bench.spark, job.rows, job.value_bytes, job.keyed, job.batches)
    with topics(system, 1) as (topic,):
        writer = writer_of(peer, rows, system, topic)
        return queries.throughput(queries.first_batches(writer, job.batches))


def source(bench: Bench, job: Source, peer: str, system: System) -> Figures:
    topic = bench.inputs.topic(system, job.value_bytes, job.rows * job.batches)
    read = read_by_us if peer == OURS else read_by_spark
    _, *counted = queries.all_batches(dropped(read(bench.spark, system, topic, job.rows)))
    (before_the_end,) = queries.throughput(counted[:-1]).values()
    return queries.throughput(counted) | {"rows/s, last left out": before_the_end}


def copy(bench: Bench, job: Copy, peer: str, system: System) -> Figures:
    records = job.rows * job.batches
    origin = bench.inputs.topic(system, job.value_bytes, records)
    touch(system, records * job.value_bytes)
    with topics(system, 1) as (topic,):
        if peer in STREAMS:
            client, commit_ms = bench.streams.at(system), int(job.interval_s * 1000)
            each = records // PARTITIONS
            seconds = client.copy(STREAMS[peer], commit_ms, origin, topic, each)
            return {"rows/s": records / seconds}
        rows = read_by_spark(bench.spark, system, origin, job.rows)
        writer = writer_of(peer, rows.select("key", "value"), system, topic)
        progress = queries.all_batches(writer)
    return queries.throughput(progress[1:] if job.batches > 1 else progress)


def small(bench: Bench, job: Small, peer: str, system: System) -> Figures:
    origin = bench.inputs.topic(system, job.value_bytes, job.rows * job.batches)
    rows = read_by_spark(bench.spark, system, origin, job.rows).select("key", "value")
    with topics(system, 1) as (topic,):
        progress = queries.all_batches(writer_of(peer, rows, system, topic))
    return queries.each(progress[1:])


def visible(bench: Bench, job: Visible, peer: str, system: System) -> Figures:
    seconds = latency.SECONDS_MIN + 2 * job.trigger_s
    with topics(system, 2) as (origin, topic):
        probe = latency.Probe(system, origin, topic, seconds)
        if peer in STREAMS:
            client = bench.streams.at(system)
            commit_ms = max(int(job.trigger_s * 1000), STREAMS_COMMIT_MS_MIN)
            with client.running(STREAMS[peer], commit_ms, origin, topic):
                return probe.run()
        read = read_by_us if peer == OURS else read_by_spark
        rows = read(bench.spark, system, origin, latency.PER_BATCH_MAX)
        trigger = {"processingTime": f"{job.trigger_s:g} seconds"}
        writer = writer_of(peer, rows.select("key", "value"), system, topic)
        with queries.running(writer, trigger):
            return probe.run()


def writer_of(peer: str, rows: DataFrame, system: System, topic: str) -> Any:
    """The peer's sink, or none."""
    if peer == NOOP:
        return dropped(rows)
    write = written_by_us if peer == OURS else written_by_spark
    return write(rows, system, topic)
