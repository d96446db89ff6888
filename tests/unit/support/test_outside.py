"""What is taken from the output of outside suites, and what of two peers' verdicts is told."""

import json
from pathlib import Path

import pytest

from oncelog.core.config import BrokerConfig
from tests.support.broker import BrokerProcess
from tests.support.outside import franz
from tests.support.outside.franz import SPEAKS, calling
from tests.support.outside.franz import verdicts_of as franz_verdicts
from tests.support.outside.judge import Difference, counted, differences
from tests.support.outside.librdkafka import Librdkafka
from tests.support.outside.librdkafka import verdicts_of as librdkafka_verdicts
from tests.support.outside.secured import secure
from tests.support.outside.suites import Security


def test_verdicts_of_go_tests_and_of_their_parts_are_read() -> None:
    said = "=== RUN TestA\n    --- PASS: TestA/x (0.1s)\n--- FAIL: TestA (0.1s)\n"
    said += "--- SKIP: TestB (0.00s)\nFAIL\n"
    found = franz_verdicts(said, ["TestA", "TestB"])
    assert found == {"TestA/x": "passed", "TestA": "failed", "TestB": "skipped"}


def test_go_tests_that_ran_at_the_limit_did_not_finish() -> None:
    said = "--- PASS: TestA (0.1s)\npanic: test timed out after 10s\nrunning tests:\n"
    said += "\tTestB (10s)\n\tTestC/x (9s)\n"
    found = franz_verdicts(said, ["TestA", "TestB", "TestC", "TestD"])
    assert found["TestA"] == "passed"
    assert found["TestB"] == found["TestC"] == found["TestC/x"] == "unfinished"
    assert "TestD" not in found


def test_a_go_process_that_died_at_once_died_in_its_first_test() -> None:
    assert franz_verdicts("panic: oh\n", ["TestA", "TestB"]) == {"TestA": "unfinished"}


def test_only_go_tests_that_speak_to_a_cluster_are_run() -> None:
    source = "package kgo\nfunc TestA(t *testing.T) {\n\tadm()\n}\nfunc TestB(t *testing.T) {\n}\n"
    assert calling([source], SPEAKS) == ["TestA"]


def test_verdicts_of_a_file_of_librdkafka_are_read(tmp_path: Path) -> None:
    states = {"0001_a": "PASSED", "0001_b": "FAILED", "0001_c": "SKIPPED", "0002_d": "PASSED"}
    report = tmp_path / "report.json"
    report.write_text(json.dumps({"tests": {name: {"state": s} for name, s in states.items()}}))
    found = librdkafka_verdicts(report, "0001")
    assert found == {"0001_a": "passed", "0001_b": "failed", "0001_c": "skipped"}


def test_a_file_of_librdkafka_without_a_report_did_not_finish(tmp_path: Path) -> None:
    assert librdkafka_verdicts(tmp_path / "none.json", "0001") == {"0001": "unfinished"}


def test_only_differences_are_told_with_the_reason_for_those_expected() -> None:
    found = differences(
        "librdkafka",
        {"0001_a": "passed", "0103_b": "failed", "0170_share_consumer_c": "failed"},
        {"0001_a": "passed", "0103_b": "passed", "0170_share_consumer_c": "passed"},
    )
    assert found == [
        Difference("0103_b", "failed", "passed", ""),
        Difference("0170_share_consumer_c", "failed", "passed", "no share groups (KIP-932)"),
    ]


def test_a_test_that_only_one_peer_ran_is_a_difference() -> None:
    (found,) = differences("franz-go", {}, {"TestA": "passed"})
    assert (found.ours, found.kafkas) == ("not run", "passed")


def test_a_difference_is_explained_in_each_scenario() -> None:
    name = "sasl_ssl 0135_sasl_credentials/do_test_share_consumer"
    (found,) = differences("librdkafka", {name: "failed"}, {name: "passed"})
    assert found.reason == "no share groups (KIP-932)"


def test_a_reason_for_apache_kafkas_verdict_is_none_for_ours() -> None:
    name = "sasl_ssl 0142_reauthentication/do_test_producer"
    (theirs,) = differences("librdkafka", {name: "passed"}, {name: "failed"})
    (ours,) = differences("librdkafka", {name: "failed"}, {name: "passed"})
    assert theirs.reason
    assert not ours.reason


def test_tests_that_need_an_authorizer_or_a_login_have_brokers_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("0001-a.c", "0097-ssl.cpp", "0109-acl.cpp"):
        (tmp_path / name).touch()
    (tmp_path / "0135-sasl.cpp").write_text("static void do_test(bool b) {\n  do_test(b);\n")
    (tmp_path / "test-runner").touch()
    monkeypatch.setenv("LIBRDKAFKA_TESTS", str(tmp_path))
    found: dict[Security, dict[str, tuple[str, ...]]] = {
        security: {each.name: each.tests for each in Librdkafka(security).scenarios([])}
        for security in ("none", "needed", "all")
    }
    every = ("0001", "0097", "0109", "0135/do_test")
    needed = {"acls": ("0109",), "ssl": ("0097",), "sasl_ssl": ("0135/do_test",)}
    assert found == {
        "none": {"default": every},
        "needed": needed,
        "all": {**needed, "rest": ("0001",)},
    }
    assert all(each.is_secured for each in Librdkafka("all").scenarios([]))
    (one,) = Librdkafka("needed").scenarios(["0135/do_test"])
    assert one.tests == ("0135/do_test",)
    assert Librdkafka("needed").scenarios(["0135/do_test_more"]) == []


def test_brokers_with_an_authorizer_take_the_settings_that_they_get(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "broker")
    ways = secure([broker], tmp_path / "certificates")
    (settings,) = ways.settings
    config = BrokerConfig(settings)
    assert config.warnings == []
    assert {each.name: each.protocol for each in config.listeners} == {
        "PLAINTEXT": "PLAINTEXT",
        "BROKERS": "SASL_PLAINTEXT",
        "SASL": "SASL_PLAINTEXT",
        "SASLTLS": "SASL_SSL",
        "TLS": "SSL",
    }
    assert config.authorizer is not None
    assert ways.servers("PLAINTEXT") == broker.bootstrap_servers
    assert all(Path(path).exists() for path in ways.files.values())


def test_verdicts_are_counted() -> None:
    assert counted({"a": "passed", "b": "passed", "c": "skipped"}) == "2 passed, 1 skipped"


def test_franz_go_is_downloaded_where_no_build_has_had_it_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = tmp_path / "go"
    go.write_text(
        "#!/bin/sh\n"
        'case "$1 $2" in\n'
        '"list -m") echo " v1.2.3" ;;\n'  # nothing is downloaded for it
        f'"mod download") echo \'{{"Dir": "{tmp_path}", "Version": "v1.2.3"}}\' ;;\n'
        '"test -c") touch "$4" ;;\n'
        "esac\n"
    )
    go.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(franz, "PROGRAM", tmp_path / "built" / "franz")
    suite = franz.Franz(1)
    assert suite.version == "v1.2.3"
    assert suite.program.exists()
