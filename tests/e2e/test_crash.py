"""A broker killed under load keeps INV-1, 2, 3, 6 and 9. `make soak` is the long form."""

import shutil
from pathlib import Path

import pytest

from tests.support.broker import BrokerProcess
from tests.support.crash import run

pytestmark = [pytest.mark.slow, pytest.mark.interop, pytest.mark.timeout(180)]


@pytest.mark.alone
@pytest.mark.parametrize("seed", [11, pytest.param(12, marks=pytest.mark.soak)])
def test_nothing_is_lost_repeated_or_shown_too_early_when_the_broker_is_killed(
    seed: int, tmp_path: Path
) -> None:
    # With the default of 3 s the copier's group is rarely there before the next kill.
    settings = {"group.initial.rebalance.delay.ms": "0"}
    with BrokerProcess(tmp_path / "data", settings) as broker:
        report = run(broker, seed, duration_s=12, kill_every_s=(1.5, 3.5))
    rerun = f"rerun: make soak SEED={seed} MINUTES=0.2"
    assert not report.problems, (rerun, report.problems[:5])
    assert not report.anomalies, (rerun, report.anomalies[:5])
    assert report.counts["kills"] >= 3
    assert report.counts["idempotent records acknowledged"] > 1000
    assert report.counts["transactions committed"] > 20
    assert report.counts["transactions aborted"] > 0
    assert report.counts["records copied"] > 0


def test_a_folder_in_use_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data"):
        second = BrokerProcess(tmp_path / "data")
        with pytest.raises(RuntimeError) as refused:
            second.start()
        assert second.process is not None
        assert second.process.returncode not in (0, None)
        assert "Traceback" not in str(refused.value)
        assert "in use" in str(refused.value)


def test_a_clean_stop_ends_with_code_0_and_the_data_is_there_again(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data")
    broker.start()
    assert broker.stop() == 0
    broker.start()
    assert broker.stop() == 0
    assert "Traceback" not in broker.log_tail()
    shutil.rmtree(tmp_path / "data")
