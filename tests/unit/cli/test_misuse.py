"""A wrong command line is answered by one line on standard error, whatever the command."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from oncelog.cli.main import main

MISUSES = (
    ("--log-level", "debug", "sevre"),
    ("sevre",),
    ("serve", "--log-level", "loud"),
    ("serve", "--prot", "9092"),
    ("serve", "extra"),
    ("demo", "--seed", "first"),
    ("demo", "--kills", "9"),
    ("topics", "--json", "lost"),
    ("topics", "alter"),
    ("transactions", "abort"),
    ("completion", "nosh"),
    ("log", "dump"),
    ("simulate", "--profile", "none"),
)


def errors(*arguments: str) -> tuple[list[str], int]:
    """The lines on standard error of `oncelog ARGUMENTS`, and its exit code."""
    result = CliRunner().invoke(main, arguments)
    assert result.stdout == ""
    return result.stderr.splitlines(), result.exit_code


@pytest.mark.parametrize("arguments", MISUSES, ids=" ".join)
def test_misuse_is_one_line(arguments: tuple[str, ...]) -> None:
    lines, code = errors(*arguments)
    assert (len(lines), code) == (1, 2)
    assert lines[0].startswith("Error: ")
    assert lines[0].count("(see ") <= 1


def test_the_reason_of_the_system_is_given_without_its_number(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    (serve,), _ = errors("serve", "--data-dir", str(file), "--listen", "127.0.0.1:0")
    assert serve == f"Error: cannot create {file}: File exists"
    (metrics,), _ = errors("metrics", "--address", "127.0.0.1:1")
    assert "(Connection refused)" in metrics


def test_the_help_shows_a_commands_own_options_first() -> None:
    text = CliRunner().invoke(main, ["topics", "create", "--help"]).stdout
    assert text.index("--partitions") < text.index("Options of most commands:")
    assert text.index("Options of most commands:") < text.index("--bootstrap-server")


def test_the_list_of_commands_has_whole_sentences() -> None:
    for group in ("topics", "groups", "configs", "features", "perf"):
        assert "..." not in CliRunner().invoke(main, [group, "--help"]).stdout.partition("\n")[2]
