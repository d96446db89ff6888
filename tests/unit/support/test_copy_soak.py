"""The soak of copies: what is lost, repeated or out of order does not pass, nor who is spared."""

import random

import pytest

from tests.support.copy_soak import BOUND_S, JAVA, draw_life, judge, verdict_of
from tests.support.copying import CLIENTS

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


@pytest.mark.parametrize("kind", [*CLIENTS, JAVA])
def test_a_client_is_killed_at_least_once_and_only_then_spared(kind: str) -> None:
    rng = random.Random(kind)
    first = [draw_life(rng, kind, kill_count=0) for _ in range(100)]
    assert all(life.bound_s < BOUND_S and life.from_first_word for life in first)
    later = [draw_life(rng, kind, kill_count=1) for _ in range(100)]
    assert 0 < sum(life.bound_s == BOUND_S for life in later) < 50
    assert not all(life.from_first_word for life in later)


def test_copies_of_clients_that_were_spared_prove_nothing() -> None:
    killed, spared = {"killed": 2, "committed": 9}, {"committed": 9}
    assert verdict_of([], {"a": killed, "b": killed}) == "exact"
    assert verdict_of([], {"a": killed, "b": spared}) == "no client was killed: b"
    assert verdict_of(["1 lost"], {"a": killed, "b": spared}) == "not exact"
