"""Metrics of the process, under prometheus-client's names, and of what runs in it."""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Final

from oncelog.broker.metrics.metric import OURS, Metric, MetricType, Parts, Sample, one
from oncelog.runtime.installation import version
from oncelog.runtime.process import (
    ProcessFigures,
    count_open_files,
    open_files_limit,
    read_process,
)

__all__ = ["PROCESS_METRICS"]

_PROMETHEUS: Final = "none, as prometheus-client has it"


def _process(
    name: str, kind: MetricType, unit: str, meaning: str, value: Callable[[], float | None]
) -> Metric:
    def read(_: Parts) -> tuple[Sample, ...]:
        found = value()
        return () if found is None else one(found)

    return Metric(f"process_{name}", kind, unit, _PROMETHEUS, meaning, read)


def _figure(of: Callable[[ProcessFigures], float]) -> Callable[[], float | None]:
    def value() -> float | None:
        figures = read_process()
        return None if figures is None else of(figures)

    return value


PROCESS_METRICS: Final = (
    _process(
        "cpu_seconds_total",
        MetricType.COUNTER,
        "s",
        "Processor time of the process. Those of `process_*` are there on Linux only.",
        _figure(lambda figures: figures.cpu_s),
    ),
    _process(
        "resident_memory_bytes",
        MetricType.GAUGE,
        "bytes",
        "Memory of the process that is in RAM.",
        _figure(lambda figures: figures.resident_bytes),
    ),
    _process(
        "virtual_memory_bytes",
        MetricType.GAUGE,
        "bytes",
        "Address space of the process.",
        _figure(lambda figures: figures.virtual_bytes),
    ),
    _process(
        "open_fds",
        MetricType.GAUGE,
        "descriptors",
        "Open files and sockets.",
        count_open_files,
    ),
    _process(
        "max_fds",
        MetricType.GAUGE,
        "descriptors",
        "How many may be open.",
        open_files_limit,
    ),
    _process(
        "start_time_seconds",
        MetricType.GAUGE,
        "s",
        "When the process began, in seconds since 1970.",
        _figure(lambda figures: figures.start_s),
    ),
    Metric(
        "oncelog_build_info",
        MetricType.GAUGE,
        "1",
        OURS,
        "Always 1; the labels say which Oncelog runs on which Python.",
        lambda _: (Sample((version(), platform.python_version()), 1),),
        ("version", "python"),
    ),
)
