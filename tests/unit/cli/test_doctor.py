"""`oncelog doctor`: its findings here, and a record through a cluster and back."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from oncelog.cli import doctor
from oncelog.cli.main import main
from oncelog.testing import ControlledBroker

Oncelog = Callable[..., Result]

STEPS = ("create a topic", "commit a transaction", "read it committed", "delete the topic")


def findings(result: Result) -> dict[str, tuple[str, str]]:
    found = [json.loads(line) for line in result.stdout.splitlines()]
    return {row["check"]: (row["state"], row["detail"]) for row in found}


def test_a_cluster_is_tried_and_left_as_it_was(oncelog: Oncelog) -> None:
    before = oncelog("topics", "list").stdout
    result = oncelog("doctor", "--json")
    assert result.exit_code == 0, result.stderr
    found = findings(result)
    assert {found[step][0] for step in STEPS} == {"ok"}
    assert "broker" not in found
    assert found["python"][0] == "ok"
    assert oncelog("topics", "list").stdout == before


def test_without_an_address_a_broker_in_this_process_is_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("ONCELOG_BOOTSTRAP_SERVER", raising=False)
    result = CliRunner().invoke(main, ["doctor", "--json"])
    assert result.exit_code == 0, result.output
    found = findings(result)
    assert "oncelog serve" in found["127.0.0.1:9092"][1] or "Oncelog" in found["127.0.0.1:9092"][1]
    assert found["broker"][1].startswith("one in this process, ready in ")
    assert {found[step][0] for step in STEPS} == {"ok"}


def test_a_cluster_that_does_not_answer_is_one_line_behind_the_findings() -> None:
    result = CliRunner().invoke(main, ["doctor", "--json", "--bootstrap-server", "127.0.0.1:1"])
    assert result.exit_code == 1
    assert findings(result)["python"][0] == "ok"
    assert result.stderr.startswith("Error: no broker answers at 127.0.0.1:1 ")


def test_what_is_missing_is_said_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def version(package: str) -> str:
        if package == "uvloop":
            raise PackageNotFoundError
        return "1"

    monkeypatch.setattr(doctor, "version", version)
    monkeypatch.setattr(doctor, "find_spec", lambda _: None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    found = {one.check: one for one in doctor.installed()}
    assert found["uvloop"] == ("uvloop", "broken", "not installed")
    assert found["extra spark"].state == "note"
    assert " -m pip install " in found["extra spark"].detail
    assert found["java"].state == "note"


def test_the_end_of_a_certificate_is_told_even_where_it_lets_nobody_in(tmp_path: Path) -> None:
    settings = tmp_path / "client.properties"
    with ControlledBroker(secure=True) as broker:
        config = broker.client_config("admin", for_="java")
        lines = [f"{key}={str(value).replace(chr(10), ' ')}" for key, value in config.items()]
        settings.write_text("\n".join(lines))
        options = ["--bootstrap-server", broker.bootstrap_servers]
        options += ["--command-config", str(settings)]
        found = CliRunner().invoke(main, ["doctor", "--json", *options])
        assert found.exit_code == 0, found.stderr
        state, detail = findings(found)["certificate"]
        assert state == "ok" or "ends in" in detail
        broker.faults.expire_certificate()
        found = CliRunner().invoke(main, ["doctor", "--json", *options])
        assert found.exit_code == 1
        state, detail = findings(found)["certificate"]
        assert state == "broken"
        assert "has ended, 20" in detail
        assert "Traceback" not in found.stderr
