"""The tab key: commands without importing them, topics and groups from the cluster."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.shell_completion import BashComplete
from click.testing import CliRunner, Result

from oncelog.cli.completion import put, script
from oncelog.cli.main import main

Oncelog = Callable[..., Result]


def completed(*words: str) -> list[str]:
    *before, start = words
    shell = BashComplete(main, {}, "oncelog", "_ONCELOG_COMPLETE")
    return [item.value for item in shell.get_completions(list(before), start)]


@pytest.fixture
def _cluster(bootstrap_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONCELOG_BOOTSTRAP_SERVER", bootstrap_server)


def test_commands_and_options_are_completed() -> None:
    assert completed("top") == ["topics"]
    assert "describe" in completed("topics", "de")
    assert "--all-configs" in completed("topics", "describe", "--a")


@pytest.mark.slow
def test_commands_are_completed_without_importing_them() -> None:
    code = (
        "import sys; from tests.unit.cli.test_completion import completed; completed('s');"
        "sys.exit('oncelog.simulation' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


@pytest.mark.usefixtures("_cluster")
def test_topics_and_groups_come_from_the_cluster(oncelog: Oncelog, topic: str) -> None:
    oncelog("topics", "create", "tab-1", "tab-2", "--if-not-exists")
    oncelog("groups", "reset", "tab-group", "--topic", "tab-1", "--to-latest", "--execute")
    assert completed("topics", "describe", "tab-") == ["tab-1", "tab-2"]
    assert completed("topics", "create", "tab-") == []
    assert completed("consume", topic[:-2]) == [topic]
    assert completed("groups", "lag", "tab") == ["tab-group"]
    assert completed("configs", "describe", "topic", "tab-") == ["tab-1", "tab-2"]
    assert completed("configs", "describe", "group", "tab-") == ["tab-group"]
    assert not [name for name in completed("produce", "") if name.startswith("__")]
    assert completed("acls", "add", "app", "read", "topic:tab-") == ["topic:tab-1", "topic:tab-2"]
    assert completed("acls", "list", "group:tab") == ["group:tab-group"]


def test_operations_and_types_of_resources_are_completed() -> None:
    assert completed("acls", "check", "app", "read,al") == [
        "read,all",
        "read,alter",
        "read,alter-configs",
    ]
    assert completed("acls", "remove", "app", "pr") == ["produce"]
    assert completed("acls", "add", "app", "read", "t") == ["topic:", "transactional-id:"]
    assert completed("acls", "add", "app", "read", "topic:a", "c") == ["cluster"]
    assert completed("acls", "add", "app", "read", "user:a") == []


def test_a_cluster_that_does_not_answer_suggests_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONCELOG_BOOTSTRAP_SERVER", "127.0.0.1:1")
    assert completed("topics", "describe", "t") == []


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_it_is_set_up_once_and_what_was_there_stays(tmp_path: Path, shell: str) -> None:
    settings = tmp_path / f".{shell}rc"
    settings.write_text("alias ll='ls -l'")
    for _ in range(2):
        path = put(shell, tmp_path)
    assert path.read_text() == script(shell)
    assert settings.read_text() == f"alias ll='ls -l'\n. \"{path}\"\n"


def test_fish_finds_its_file_by_itself(tmp_path: Path) -> None:
    assert put("fish", tmp_path) == tmp_path / ".config/fish/completions/oncelog.fish"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_bash_takes_the_script(tmp_path: Path) -> None:
    path = put("bash", tmp_path)
    command = ["bash", "-c", f'. "{path}"; complete -p oncelog']
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    assert "_oncelog_completion oncelog" in done.stdout


def test_an_unknown_shell_is_one_line() -> None:
    result = CliRunner().invoke(main, ["completion"], env={"SHELL": "/bin/tcsh"})
    assert result.exit_code == 1
    assert result.stderr == "Error: no completion for tcsh: name bash, zsh, fish\n"
