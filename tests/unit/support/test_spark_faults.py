"""The faults of the crash table strike where they are meant to."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.faults import BETWEEN, Fault, FaultSequence, InjectedError, Victim


def test_two_tasks_at_one_point_do_not_strike_the_fault_of_the_next_batch(tmp_path: Path) -> None:
    struck = [tmp_path / "0", tmp_path / "1"]
    faults = [
        Fault.at("after_init", Victim.QUERY, batch, path, tmp_path / "pid")
        for batch, path in enumerate(struck)
    ]
    one = FaultSequence.of(*faults)
    other = pickle.loads(pickle.dumps(one))
    assert one.is_at("after_init", 0)
    assert other.is_at("after_init", 0)
    with pytest.raises(InjectedError):
        one.kill()
    other.kill()
    assert [path.exists() for path in struck] == [True, False]
    assert not other.is_at("after_init", 0)
    assert other.is_at("after_init", 1)


def test_a_fault_between_two_batches_strikes_when_spark_has_noted_the_first(tmp_path: Path) -> None:
    commits = tmp_path / "checkpoint" / "commits"
    commits.mkdir(parents=True)
    pid_file, struck = tmp_path / "pid", tmp_path / "struck"
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as broker:
        pid_file.write_text(str(broker.pid))
        fault = Fault.at(BETWEEN, Victim.BROKER, 3, struck, pid_file)
        assert not fault.is_at("txn_ended", 2)
        assert not fault.is_at("txn_ended", 3)
        (commits / "2").touch()
        assert not struck.exists()
        (commits / "3").touch()
        assert broker.wait(30) == -9
    assert struck.exists()
