"""The state that stores in memory have in common."""

from __future__ import annotations

from oncelog.metadata import Change, Stored, Write
from oncelog.metadata.state import StoreState
from oncelog.metadata.store import Changes


def test_a_copy_stays_as_the_state_was() -> None:
    state = StoreState()
    state.write_all([Write("/a", b"1", 0)])
    state.write_all([Write("/b", b"1", 0)])
    copied = state.copy()
    state.write_all([Write("/a", b"2", 1), Write("/b", None, 1)])
    assert copied.list("") == {"/a": Stored(b"1", 1), "/b": Stored(b"1", 1)}
    assert copied.changes(1) == Changes(2, (Change("/b", b"1", 1),))
    assert copied.changes(2) == Changes(2, ())
