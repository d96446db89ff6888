"""`oncelog users`: at a broker, and before there is one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from oncelog import EmbeddedBroker
from oncelog.broker.membership.stores import METADATA_FILE
from oncelog.cli.main import main
from oncelog.core.sasl import credential_of, salted_password

Oncelog = Callable[..., Result]
SHA512 = "SCRAM-SHA-512"


@pytest.fixture(autouse=True)
def _nobody_left(oncelog: Oncelog) -> Iterator[None]:
    yield
    for user in {str(row["user"]) for row in rows(oncelog("users", "list", "--json"))}:
        assert oncelog("users", "remove", user).exit_code == 0


def rows(result: Result) -> list[dict[str, object]]:
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def at_folder(*arguments: str, stdin: str = "geheim\n") -> Result:
    return CliRunner().invoke(main, ["users", *arguments], input=stdin)


def test_users_are_added_listed_and_removed(oncelog: Oncelog) -> None:
    assert oncelog("users", "list").stdout == ""
    added = oncelog("users", "add", "app", stdin="geheim\n")
    assert added.stdout == f"app can log in by {SHA512}\n"
    options = ("--mechanism", "scram-sha-256", "--iterations", "8192")
    assert oncelog("users", "add", "app", *options, stdin="geheim").exit_code == 0
    assert rows(oncelog("users", "list", "--json")) == [
        {"user": "app", "mechanism": "SCRAM-SHA-256", "iterations": 8192},
        {"user": "app", "mechanism": SHA512, "iterations": 4096},
    ]
    removed = oncelog("users", "remove", "app", "--mechanism", SHA512)
    assert removed.stdout == f"app cannot log in by {SHA512} any more\n"
    assert oncelog("users", "remove", "app").exit_code == 0
    assert oncelog("users", "list").stdout == ""


def test_a_password_may_be_in_a_file(oncelog: Oncelog, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("geheim\nnicht das\n")
    assert oncelog("users", "add", "app", "--password-file", str(file)).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("add", "app"), "the password is empty: name --password-file"),
        (("add", "app", "--iterations", "4095"), "4095 is not in the range 4096<=x<=16384"),
        (("add", "app", "--mechanism", "PLAIN"), "'PLAIN' is not one of"),
        (("add", "app", "--password-file", "/none"), "'/none' does not exist"),
        (("remove", "app"), "no user app can log in: see `oncelog users list`"),
    ],
)
def test_what_cannot_be_done_is_told_in_a_line(
    oncelog: Oncelog, arguments: tuple[str, ...], text: str
) -> None:
    result = oncelog("users", *arguments)
    assert result.exit_code != 0
    assert text in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_password_that_is_no_text_is_refused(oncelog: Oncelog, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_bytes(b"\xff\xfe")
    result = oncelog("users", "add", "app", "--password-file", str(file))
    assert "it is no UTF-8 text" in result.stderr


def test_the_first_user_is_added_before_the_broker_has_ever_run(tmp_path: Path) -> None:
    folder = ("--data-dir", str(tmp_path / "data"))
    added = at_folder("add", "admin", *folder)
    assert (added.exit_code, added.stdout) == (0, f"admin can log in by {SHA512}\n")
    assert "admin" in at_folder("list", *folder).stdout
    for _ in range(2):
        with EmbeddedBroker(data_dir=tmp_path / "data") as broker:
            listed = at_folder("list", "--bootstrap-server", broker.bootstrap_servers)
            assert listed.stdout == f"admin\t{SHA512}\t4096\n"
            running = at_folder("list", *folder)
            assert "the broker runs: ask it, by --bootstrap-server" in running.stderr
    assert at_folder("add", "second", *folder).exit_code == 0
    assert at_folder("remove", "admin", *folder).exit_code == 0
    assert at_folder("list", *folder).stdout == f"second\t{SHA512}\t4096\n"


async def test_the_password_that_was_given_is_the_one_that_is_kept(tmp_path: Path) -> None:
    from oncelog.broker.controller.stopped import read_stopped
    from oncelog.metadata.sqlite import SqliteStore

    folder = tmp_path / "data"
    import asyncio

    arguments = ("add", "admin", "--data-dir", str(folder))
    result = await asyncio.to_thread(at_folder, *arguments, stdin="geheim\nzweite Zeile\n")
    assert result.exit_code == 0
    store = SqliteStore(str(folder / METADATA_FILE))
    try:
        image = await read_stopped(store, None)
    finally:
        await store.close()
    found = image.scram_credentials["admin"][SHA512]
    salted = salted_password(SHA512, "geheim", found.salt, found.iterations)
    assert credential_of(SHA512, salted, found.salt, found.iterations) == found
    assert len(found.salt) == 32


def test_what_the_controller_refuses_is_refused_before_the_start_too(tmp_path: Path) -> None:
    result = at_folder("add", "", "--data-dir", str(tmp_path / "data"))
    assert result.stderr == "Error: Username must not be empty (UNACCEPTABLE_CREDENTIAL)\n"


def test_a_folder_whose_metadata_is_elsewhere_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with EmbeddedBroker(data_dir=folder):
        pass
    (folder / METADATA_FILE).rename(folder / "elsewhere.sqlite")
    result = at_folder("add", "admin", "--data-dir", str(folder))
    assert f"there is no {METADATA_FILE} in {folder}" in result.stderr
    assert not (folder / METADATA_FILE).exists()


def test_folders_of_two_brokers_are_refused(tmp_path: Path) -> None:
    names = [str(tmp_path / name) for name in ("one", "two")]
    for name in names:
        with EmbeddedBroker(data_dir=name):
            pass
    result = at_folder("list", "--data-dir", names[0], "--data-dir", names[1])
    assert result.stderr == "Error: these are not the log directories of one broker\n"
