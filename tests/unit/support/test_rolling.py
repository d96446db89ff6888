"""What the judge of a rolling restart finds in what applications tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.rolling import Report, Told, judge

SENT = ["sent a-idempotent 0 -1 0", "acked a-idempotent 0 7 1500000000"]
ENDED = ["ended a-transactional 0 COMMITTED 2000000000"]
READ = ["read a-idempotent 0 7 a-idempotent/0/-1"]


def judged(folder: Path, *lines: str) -> Report:
    path = folder / "a.told"
    path.write_text("".join(f"{line}\n" for line in lines))
    report = Report()
    judge(report, Told("a", path), 1.0, 4.0)
    return report


def test_a_run_as_it_should_be_has_no_finding(tmp_path: Path) -> None:
    report = judged(tmp_path, *SENT, *READ, "done")
    assert report.findings == []
    assert report.counts["a-idempotent"] == 1


def test_the_longest_pause_counts_the_ends_of_the_stretch(tmp_path: Path) -> None:
    report = judged(tmp_path, *SENT, *READ, "done")
    assert report.pauses_s["a-idempotent"] == pytest.approx(2.5)


def test_an_error_that_reached_the_application_is_a_problem(tmp_path: Path) -> None:
    report = judged(tmp_path, *SENT, *READ, "problem a-idempotent KafkaException", "done")
    assert report.problems == ["a-idempotent KafkaException"]
    assert report.findings == []


def test_what_a_reader_that_an_error_ended_did_not_read_is_not_lost(tmp_path: Path) -> None:
    refused = "problem a-reader-idempotent Refused"
    report = judged(tmp_path, *SENT, refused, "sent a-transactional 0 0 0", "done")
    assert report.problems == ["a-reader-idempotent Refused"]
    assert report.findings == []
    acked = ["sent a-transactional 0 0 0", "acked a-transactional 0 1 1", *ENDED]
    assert any("lost" in each for each in judged(tmp_path, refused, *acked, "done").findings)


def test_a_record_that_was_read_twice_is_a_finding(tmp_path: Path) -> None:
    report = judged(tmp_path, *SENT, *READ, *READ, "done")
    assert any("duplicate" in each for each in report.findings)


def test_a_record_that_was_not_read_is_a_finding(tmp_path: Path) -> None:
    report = judged(tmp_path, *SENT, "done")
    assert any("lost" in each for each in report.findings)


def test_a_client_that_did_not_come_to_its_end_is_a_finding(tmp_path: Path) -> None:
    report = judged(tmp_path, *SENT, *READ)
    assert report.findings == ["a did not come to its end"]
