"""The verdict of the soak of copies: what is lost, repeated or out of order does not pass."""

import pytest

from tests.support.copy_soak import judge

SOURCE = {0: [b"0:0", b"0:1", b"0:2"], 1: [b"1:0"]}


def copy_of(first: list[bytes]) -> dict[str, dict[int, list[bytes]]]:
    return {"copy": {0: first, 1: [b"1:0"]}}


def test_an_exact_copy_passes() -> None:
    assert judge(SOURCE, copy_of([b"0:0", b"0:1", b"0:2"]), "a reader") == []


@pytest.mark.parametrize(
    ("seen", "finding"),
    [
        ([b"0:0", b"0:2"], "1 lost, 0 twice"),
        ([b"0:0", b"0:1", b"0:1", b"0:2"], "0 lost, 1 twice"),
        ([b"0:1", b"0:0", b"0:2"], "0 lost, 0 twice, out of order"),
        ([], "3 lost, 0 twice"),
    ],
)
def test_any_other_copy_does_not(seen: list[bytes], finding: str) -> None:
    assert judge(SOURCE, copy_of(seen), "a reader") == [f"a reader: copy-0: {finding}"]
