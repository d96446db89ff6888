"""A broker in which tests inject faults is an embedded broker in all else."""

from pathlib import Path

from oncelog.testing import ControlledBroker


def test_it_can_be_entered_again_with_its_faults(tmp_path: Path) -> None:
    broker = ControlledBroker(tmp_path / "data")
    for number in range(2):
        with broker:
            broker.create_topic(f"topic-{number}")
            broker.faults.advance_clock(1000)
            broker.faults.kill().wait()
            broker.create_topic(f"killed-{number}")
            assert broker.call(lambda inside: len(inside.image.topics)) == 2 * (number + 1)
