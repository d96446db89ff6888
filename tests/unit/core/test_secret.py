"""A secret is kept and never shown."""

import pickle

from oncelog.core.secret import HIDDEN, Secret, reveal


def test_a_secret_is_never_shown() -> None:
    secret = Secret("geheim")
    shown = (repr(secret), str(secret), f"{secret}", f"{secret!r:>20}", repr([secret]))
    assert all("geheim" not in text and HIDDEN in text for text in shown)


def test_a_secret_is_its_value_to_those_who_ask() -> None:
    assert reveal(Secret("a")) == reveal("a") == Secret(Secret("a")).value == "a"
    assert Secret("a") == pickle.loads(pickle.dumps(Secret("a")))
    assert Secret("a") != Secret("b")
    assert len({Secret("a"), Secret("a")}) == 1
