"""The faults of the crash table strike where they are meant to."""

import pickle
from pathlib import Path

import pytest

from tests.spark.faults import Fault, FaultSequence, InjectedError, Victim


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
