"""How `make test` starts its parts."""

import sys

import pytest

from tests.support.suite import environment, run_for

HANGS = "import faulthandler, subprocess, sys, time; faulthandler.enable(); "
PARENT = f"""{HANGS}
child = subprocess.Popen([sys.executable, "-c", {HANGS + "time.sleep(100)"!r}])
child.wait()
time.sleep(100)
"""


def test_bytecode_is_kept_though_the_environment_forbids_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    assert "PYTHONDONTWRITEBYTECODE" not in environment()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="children are found under /proc")
def test_a_part_that_hangs_is_aborted_and_tells_where_each_process_stood(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert run_for([sys.executable, "-c", PARENT], 2.0) < 0
    told = capfd.readouterr()
    assert "no end after 2 s" in told.out
    assert told.err.count("Fatal Python error: Aborted") == 2


def test_a_part_that_ends_has_its_exit_code() -> None:
    assert run_for([sys.executable, "-c", "raise SystemExit(3)"], 60.0) == 3
