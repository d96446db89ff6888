"""Kafka's client settings on the command line and in a file."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from oncelog.cli.main import main
from tests.unit.cli.conftest import Oncelog


def line(result: Result, code: int) -> str:
    assert result.exit_code == code, result.stderr
    assert result.stdout == ""
    (text,) = result.stderr.splitlines()
    return text


def test_settings_come_from_a_file_and_the_line_wins(oncelog: Oncelog, tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("bootstrap.servers=elsewhere:1\nacks=all\nlinger.ms=5\nsecurity.protocol=SSL\n")
    given = ("--command-config", str(path), "-X", "security.protocol=PLAINTEXT")
    for turned in (given, given[2:] + given[:2]):
        assert oncelog("topics", "list", *turned).exit_code == 0


@pytest.mark.parametrize(
    ("options", "what", "code"),
    [
        (("-X", "security.protcol=SSL"), "did you mean security.protocol?", 1),
        (("-X", "sasl.password=geheim"), "set security.protocol=SASL_SSL", 1),
        (("-X", "foo=bar"), "foo is not a known setting", 1),
        (("-X", "linger_ms=5"), "did you mean linger.ms?", 1),
        (("-X", "geheim"), "a setting must be like KEY=VALUE", 2),
        (("--command-config", "/no/file"), "cannot read /no/file: No such file", 2),
    ],
)
def test_what_cannot_be_used_is_one_line(
    oncelog: Oncelog, options: tuple[str, ...], what: str, code: int
) -> None:
    text = line(oncelog("topics", "list", *options), code)
    assert what in text
    assert "geheim" not in text


def test_every_command_that_connects_takes_settings(oncelog: Oncelog, topic: str) -> None:
    wrong = ("-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanism=PLAIN")
    user = ("-X", "sasl.username=alice", "-X", "sasl.password=geheim")
    for command in (("consume", topic, "--until-end"), ("produce", topic), ("topics", "list")):
        text = line(oncelog(*command, *wrong, *user), 1)
        assert "this listener knows no SASL" in text
        assert "SASL PLAIN as user alice" in text


def test_the_file_names_the_brokers_where_nothing_else_does(
    oncelog: Oncelog, bootstrap_server: str, tmp_path: Path
) -> None:
    path = tmp_path / "client.properties"
    path.write_text(f"bootstrap.servers={bootstrap_server}\n")
    for option in ("--command-config", "--consumer.config"):
        result = CliRunner(env={"ONCELOG_BOOTSTRAP_SERVER": None}).invoke(
            main, ["topics", "list", option, str(path)]
        )
        assert (result.exit_code, result.stderr) == (0, "")
    path.write_text("bootstrap.servers=127.0.0.1:1\n")
    assert oncelog("topics", "list", "--command-config", str(path)).exit_code == 0
    text = line(oncelog("topics", "list", "-X", "bootstrap.servers=127.0.0.1:1"), 1)
    assert text.startswith("Error: no broker answers at 127.0.0.1:1 ")
