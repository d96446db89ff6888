"""How `make test` starts its parts."""

import pytest

from tests.support.suite import environment


def test_compiled_modules_are_kept_though_the_environment_forbids_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("ONCELOG_COMPILED", "0")
    assert "PYTHONDONTWRITEBYTECODE" not in environment()
    assert environment()["ONCELOG_COMPILED"] == "0"
