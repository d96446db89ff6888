"""`oncelog log dump`: every kind of file, filters, JSON, and damage."""

import json
from pathlib import Path
from typing import Any

import pytest

from oncelog.cli.log.kinds import FileKind, kind_of
from tests.unit.cli.log.conftest import Oncelog

FIRST = "00000000000000000000"
SECOND = "00000000000000000025"


def rows(log: Oncelog, *arguments: object) -> list[dict[str, Any]]:
    result = log("dump", *arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_every_kind_of_file_is_shown(log: Oncelog, folder: Path) -> None:
    seen = set()
    for path in sorted(folder.rglob("*")):
        kind = kind_of(path.name)
        if kind is not None:
            shown = rows(log, path)
            assert all(row["kind"] == kind.value for row in shown)
            if path.stat().st_size > 20:
                assert shown, path
            seen.add(kind)
    assert seen == set(FileKind)


def test_a_log_is_shown_batch_by_batch_with_its_markers(log: Oncelog, folder: Path) -> None:
    shown = rows(log, folder / "mixed-0" / f"{FIRST}.log")
    assert [row["base_offset"] for row in shown] == list(range(25))
    assert [row["what"] for row in shown[:3]] == [
        "transactional",
        "transactional",
        "COMMIT by coordinator epoch 0",
    ]
    assert shown[5]["what"] == "ABORT by coordinator epoch 0"


def test_offsets_choose_batches_and_segments(log: Oncelog, folder: Path) -> None:
    shown = rows(log, folder / "plain-0", "--offsets", "24..26")
    batches = [row for row in shown if row["kind"] == "log"]
    assert [row["base_offset"] for row in batches] == [24, 25, 26]
    assert [Path(row["file"]).stem for row in batches] == [FIRST, SECOND, SECOND]
    (one,) = rows(log, folder / "plain-0" / f"{SECOND}.log", "--offset", 30)
    assert one["base_offset"] == 30


def test_a_producer_chooses_batches_and_snapshot_entries(log: Oncelog, folder: Path) -> None:
    shown = rows(log, folder / "mixed-0", "--producer-id", 99)
    assert {row["producer_id"] for row in shown if "producer_id" in row} == {99}
    assert {row["kind"] for row in shown if "producer_id" in row} >= {"log", "producer snapshot"}


def test_a_key_chooses_records(log: Oncelog, folder: Path) -> None:
    shown = rows(log, folder / "plain-0", "--key", "key 3")
    assert [row["value"] for row in shown] == [f"value {n}" for n in range(3, 40, 7)]


def test_the_transaction_log_is_decoded(log: Oncelog, folder: Path) -> None:
    shown = rows(log, folder / "__transaction_state-0", "--transactional-id", "ends")
    assert {row["key"]["transactional_id"] for row in shown} == {"ends"}
    assert {row["value"]["status"] for row in shown} >= {"ONGOING", "COMPLETE_ABORT"}
    assert not rows(log, folder / "__transaction_state-0", "--transactional-id", "nobody")


def test_the_offsets_topic_is_decoded(log: Oncelog, folder: Path) -> None:
    shown = rows(log, folder / "__consumer_offsets-0", "--records")
    commits = [row for row in shown if row["kind"] == "log" and row["key"]]
    assert {"group": "readers", "topic": "trimmed", "partition": 0} in [c["key"] for c in commits]
    assert commits[-1]["value"]["offset"] == 30


def test_a_data_folder_is_shown_with_a_line_per_partition(log: Oncelog, folder: Path) -> None:
    shown = rows(log, folder)
    partitions = [row["partition"] for row in shown if row["kind"] == "log directory"]
    assert partitions[-3:] == ["mixed-0", "plain-0", "trimmed-0"]
    assert {"log-start-offset-checkpoint", "meta.properties"} <= {
        Path(row["file"]).name for row in shown
    }


@pytest.mark.damages
def test_damage_is_named_and_the_rest_is_shown(log: Oncelog, folder: Path) -> None:
    path = folder / "plain-0" / f"{FIRST}.log"
    data = bytearray(path.read_bytes())
    size = rows(log, path)[3]["position"]
    data[size + 62] ^= 1
    path.write_bytes(data)
    shown = rows(log, path)
    assert [row["base_offset"] for row in shown] == [*range(3), None, *range(4, 25)]
    assert shown[3]["what"].startswith("DAMAGED: the CRC is wrong")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nothing-here"], "cannot read nothing-here: No such file or directory"),
        (["."], "holds no partitions"),
        ([__file__], "is no file of a log directory"),
        ([".", "--offsets", "7"], "'7' is not A..B"),
        ([".", "--offsets", "7..3"], "'7..3' is empty"),
        ([".", "--offset", "1", "--offsets", "1..2"], "name either"),
    ],
)
def test_what_makes_no_sense_gets_one_sentence(
    log: Oncelog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str],
    sentence: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    result = log("dump", *arguments)
    assert result.exit_code in (1, 2)
    assert sentence in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.damages
def test_a_file_that_does_not_parse_is_called_damaged(log: Oncelog, folder: Path) -> None:
    for name in ("recovery-point-offset-checkpoint", "mixed-0/leader-epoch-checkpoint"):
        (folder / name).write_bytes(b"garbage")
        result = log("dump", folder / name)
        assert "DAMAGED, 7 bytes" in result.stdout
