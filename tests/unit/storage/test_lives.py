"""Whether a start may have lost records of the life before: the rows of the decision's table."""

from __future__ import annotations

from typing import Any

import pytest

from oncelog.runtime.file_place import FilePlace
from oncelog.storage.lives import (
    FolderLife,
    LifeNote,
    decide_unclean,
    format_clean_shutdown,
    format_note,
    is_of_dead_life,
    last_sound_epoch,
    parse_clean_shutdown,
    parse_note,
)

HERE = FilePlace("boot", 1, 7, is_local=True)
REBOOTED = FilePlace("another boot", 9, 7, is_local=True)
COPIED = FilePlace("boot", 1, 8, is_local=True)
REMOTE = FilePlace("boot", 1, 7, is_local=False)
NO_BOOT = FilePlace("", 1, 7, is_local=True)


def folder(
    *,
    closed: int | None = None,
    noted: int | None = 5,
    noted_at: FilePlace = HERE,
    place: FilePlace = HERE,
    is_synced: bool = False,
    is_new: bool = False,
) -> FolderLife:
    note = None if noted is None else LifeNote(noted, noted_at, is_synced)
    return FolderLife("/data", is_new, closed, note, None if noted is None else place)


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        ({"is_new": True, "noted": None}, None),
        ({"closed": 5}, None),
        ({"closed": 5, "noted": None}, None),
        ({"closed": 5, "noted": 4, "place": COPIED}, None),
        ({"closed": 4}, "/data is of life 4 of this broker, whose last was 5"),
        ({"closed": 6}, "/data is of life 6 of this broker, whose last was 5"),
        ({"closed": -1}, "/data is of life 0 of this broker, whose last was 5"),
        ({"noted": None}, "no sound note of its last life"),
        ({"noted": 4}, "not closed cleanly in life 4 of this broker, whose last was 5"),
        ({"noted": 6}, "not closed cleanly in life 6 of this broker, whose last was 5"),
        ({}, None),
        ({"is_synced": True}, None),
        ({"place": REMOTE}, "its file system may have lost records"),
        ({"place": REMOTE, "is_synced": True}, None),
        ({"place": REBOOTED}, "before the system went down"),
        ({"place": REBOOTED, "is_synced": True}, None),
        ({"place": NO_BOOT, "noted_at": NO_BOOT}, "before the system went down"),
        ({"place": COPIED}, "/data is a copy"),
        ({"place": COPIED, "is_synced": True}, "/data is a copy"),
    ],
)
def test_each_row_of_the_table_decides_one_folder(
    found: dict[str, Any], reason: str | None
) -> None:
    decided = decide_unclean(5, [folder(**found)], ())
    if reason is None:
        assert decided is None
    else:
        assert decided is not None
        assert reason in decided


def test_one_unclean_folder_of_several_is_enough() -> None:
    assert decide_unclean(5, [folder(), folder(closed=5)], ()) is None
    assert decide_unclean(5, [folder(), folder(noted=4)], ()) is not None


def test_a_folder_that_is_missing_makes_the_start_unclean() -> None:
    assert decide_unclean(5, [folder(closed=5)], {"b", "a"}) == (
        "the log directory with directory.id=a is missing"
    )


def test_what_an_earlier_version_closed_is_before_the_first_life() -> None:
    assert decide_unclean(0, [folder(closed=-1, noted=None)], ()) is None
    assert decide_unclean(0, [folder(noted=None)], ()) is not None


@pytest.mark.parametrize(
    ("found", "is_dead"),
    [
        ({}, True),
        ({"closed": 5}, True),
        ({"noted": 4}, False),
        ({"noted": None}, False),
        ({"place": COPIED}, False),
        ({"place": REBOOTED}, False),
        ({"place": REBOOTED, "is_synced": True}, False),
        ({"place": REMOTE}, False),
    ],
)
def test_a_registration_is_taken_over_in_the_folders_of_its_process(
    found: dict[str, Any], is_dead: bool
) -> None:
    assert is_of_dead_life(5, [folder(**found)]) is is_dead
    assert not is_of_dead_life(5, [folder(**found), folder(noted=None)])
    assert not is_of_dead_life(5, [])


@pytest.mark.parametrize(
    ("found", "epoch"),
    [
        ({"closed": 4}, 4),
        ({}, 5),
        ({"place": REBOOTED}, -1),
        ({"place": COPIED}, -1),
        ({"noted": None}, -1),
    ],
)
def test_a_start_that_fails_closes_a_folder_as_it_found_it(
    found: dict[str, Any], epoch: int
) -> None:
    assert last_sound_epoch(folder(**found)) == epoch


def test_a_note_is_read_as_it_was_written() -> None:
    for note in (LifeNote(5, HERE, is_synced=True), LifeNote(0, REMOTE, is_synced=False)):
        assert parse_note(format_note(note)) == note


def test_a_damaged_note_is_none() -> None:
    sound = format_note(LifeNote(5, HERE, is_synced=False))
    assert parse_note(None) is None
    assert all(parse_note(sound[:length]) is None for length in range(len(sound) - 1))
    for position in range(len(sound) - 1):
        damaged = bytearray(sound)
        damaged[position] ^= 1
        assert parse_note(bytes(damaged)) is None
    assert parse_note(bytes(len(sound))) is None


@pytest.mark.parametrize(
    ("content", "epoch"),
    [
        (None, None),
        (format_clean_shutdown(7), 7),
        (b'{"version": 0, "brokerEpoch": -1}', -1),
        (b"", -1),
        (b"[]", -1),
        (b'{"version": 0}', -1),
        (b'{"brokerEpoch": "7"}', -1),
    ],
)
def test_a_clean_shutdown_names_its_life_as_kafkas_does(
    content: bytes | None, epoch: int | None
) -> None:
    assert parse_clean_shutdown(content) == epoch
