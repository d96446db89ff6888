"""What the system counts of this process."""

import os
import sys
import time
from pathlib import Path

import pytest
from prometheus_client import ProcessCollector

from oncelog.runtime.process import count_open_files, open_files_limit, read_process

LINUX_ONLY = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has it in /proc")


@LINUX_ONLY
def test_the_figures_are_those_of_prometheus_client() -> None:
    figures = read_process()
    assert figures is not None
    theirs = {m.name: m.samples[0].value for m in ProcessCollector(registry=None).collect()}
    assert figures.start_s == pytest.approx(theirs["process_start_time_seconds"], abs=1)
    assert open_files_limit() == theirs["process_max_fds"]
    assert figures.cpu_s == pytest.approx(theirs["process_cpu_seconds"], abs=1)
    assert figures.resident_bytes == pytest.approx(theirs["process_resident_memory_bytes"], rel=0.1)
    assert figures.virtual_bytes == pytest.approx(theirs["process_virtual_memory_bytes"], rel=0.1)
    assert figures.start_s < time.time()


@LINUX_ONLY
def test_an_opened_file_counts(tmp_path: Path) -> None:
    before = count_open_files()
    number = os.open(tmp_path, os.O_RDONLY)
    after = count_open_files()
    os.close(number)
    assert before is not None
    assert after is not None
    assert after == before + 1


def test_without_proc_there_are_no_figures(tmp_path: Path) -> None:
    assert read_process(tmp_path) is None
    assert count_open_files(tmp_path) is None
    assert open_files_limit(tmp_path) is None
