"""What a terminal showed, as a picture that plays."""

import sys
from xml.etree import ElementTree

from tests.support.recording import (
    COLUMNS,
    LAST_FRAME_S,
    PLAY_S_MAX,
    WAIT_MAX_S,
    Frame,
    drawn,
    record,
)

PRINTS = "print('\\033[1;32mdone\\033[0m <1> & more'); print('x' * 120)"


def plain(text: str) -> tuple[tuple[str, str, bool], ...]:
    return ((text, "default", False),)


def test_a_command_is_recorded_as_its_terminal_shows_it() -> None:
    frames, exit_code = record([sys.executable, "-c", PRINTS])
    shown = frames[-1].lines
    assert exit_code == 0
    assert shown[0] == (("done", "green", True), (" <1> & more", "default", False))
    assert shown[1:3] == (plain("x" * COLUMNS), plain("x" * (120 - COLUMNS)))


def test_the_exit_code_is_the_commands() -> None:
    assert record([sys.executable, "-c", "raise SystemExit(3)"])[1] == 3


def test_waits_are_shortened_and_each_line_is_written_once() -> None:
    first, both = (plain("a"),), (plain("a"), plain("<b>"))
    picture = drawn([Frame(0.0, first), Frame(60.0, both), Frame(60.5, first)], "a title")
    assert f"play {WAIT_MAX_S + 0.5 + LAST_FRAME_S:.1f}s" in picture
    root = ElementTree.fromstring(picture)
    name = "{http://www.w3.org/2000/svg}"
    lines = ["".join(text.itertext()) for text in root.iter(f"{name}text")]
    assert lines == ["a", "<b>"]
    assert len(list(root.iter(f"{name}use"))) == 4


def test_a_long_recording_is_played_faster_and_ends_with_its_last_frame() -> None:
    frames = [Frame(second, (plain(f"line {second}"),)) for second in range(1001)]
    picture = drawn(frames, "a title")
    assert f"play {PLAY_S_MAX + LAST_FRAME_S - 0.1:.1f}s" in picture
    assert "played 33 times as fast" in picture
    assert "line 1000" in picture
    assert picture.count("<use") <= PLAY_S_MAX / 0.15 + 1
