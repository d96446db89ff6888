"""The made-up cluster of the protocol's tests; PySpark that is too old for the source's tests."""

import pytest

from oncelog.spark.versions import has_admission_control
from tests.unit.spark.protocol_fakes import Coordinator, Start, starting

collect_ignore = [] if has_admission_control() else ["test_source.py", "test_source_read.py"]


@pytest.fixture
def cluster() -> Coordinator:
    return Coordinator()


@pytest.fixture
def start(cluster: Coordinator) -> Start:
    return starting(cluster)
