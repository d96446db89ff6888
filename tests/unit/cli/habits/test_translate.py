"""Command lines of Kafka's tools, kcat and rpk: what they are here."""

from __future__ import annotations

import shlex

import click
import pytest
from click.testing import CliRunner

from oncelog.cli.habits import hints
from oncelog.cli.habits.table import (
    ANSWERS,
    COMMANDS,
    NOTHING,
    OPTIONS,
    PAIRS,
    Answer,
    Either,
)
from oncelog.cli.habits.translate import (
    Advice,
    arguments,
    command_names,
    option_names,
    own_options,
    to_command,
    to_options,
)
from oncelog.cli.main import main

SAME = (
    # kafka-topics
    ("topics --list", "topics list"),
    ("topics --list --exclude-internal", "topics list"),
    ("topics --create --topic t --partitions 3", "topics create --partitions 3 t"),
    ("topics --bootstrap-server h:1 --create --topic t", "topics create --bootstrap-server h:1 t"),
    ("topics --topic=t --describe", "topics describe t"),
    ("topics --describe", "topics describe"),
    ("topics --alter --topic t --partitions 4", "topics alter --partitions 4 t"),
    ("kafka-topics.sh --delete --topic t", "topics delete t"),
    ("topics create -topic t -partitions 3", "topics create --partitions 3 t"),
    # Options before the command
    ("--bootstrap-server h:1 topics list", "topics list --bootstrap-server h:1"),
    ("--bootstrap-server=h:1 topics --list", "topics list --bootstrap-server=h:1"),
    ("-Xacks=1 --json topics list", "topics list -X acks=1 --json"),
    ("-b h:1 topics list", "topics list --bootstrap-server h:1"),
    # kafka-configs
    (
        "configs --alter --entity-type topics --entity-name t --add-config a=1,b=[x,y]",
        "configs alter --config a=1 --config b=x,y topic t",
    ),
    (
        "configs --entity-name t --entity-type topics --alter --delete-config a,b",
        "configs alter --delete-config a --delete-config b topic t",
    ),
    ("kafka-configs --describe --broker 1 --all", "configs describe --all broker 1"),
    ("configs describe topics t", "configs describe topic t"),
    # kafka-acls
    ("kafka-acls --list --principal User:a", "acls list --user User:a"),
    ("kafka-acls --remove --force", "acls remove"),
    # kafka-consumer-groups
    ("consumer-groups --list", "groups list"),
    ("groups describe g", "groups lag g"),
    ("groups --describe --group g", "groups lag g"),
    ("groups --describe --group g --members", "groups show g"),
    ("groups --describe --all-groups", "groups lag"),
    (
        "consumer-groups --reset-offsets --group g --topic t --to-earliest --dry-run",
        "groups reset --topic t --to-earliest g",
    ),
    (
        "consumer-groups --group g --reset-offsets --topic t:0,2 --to-latest",
        "groups reset --partition 0 --partition 2 --topic t --to-latest g",
    ),
    ("groups --delete-offsets --group g --topic t", "groups delete --topic t g"),
    # kafka-console-consumer and -producer
    (
        "kafka-console-consumer --topic t --from-beginning --max-messages 3 --group g",
        "consume --from-beginning --max-messages 3 --group g t",
    ),
    (
        "consume t --property key.separator=: --property print.key=true",
        "consume --print-key t --key-separator :",
    ),
    ("consume t --property print.offset=false", "consume t"),
    ("consume t --consumer.config f", "consume t --command-config f"),
    ("consume t --consumer-property a=b", "consume t -X a=b"),
    ("consume t --group-id g", "consume t --group g"),
    (
        "console-producer --broker-list h:1 --topic t --request-required-acks -1",
        "produce --bootstrap-server h:1 --request-required-acks all t",
    ),
    (
        "produce t --property key.separator=, --property parse.key=true",
        r"produce '--key-separator=\t' t --key-separator ,",
    ),
    # kcat
    (
        "-C -b h:1 -t t -p 0 -o beginning -c 5 -e -q",
        "consume --bootstrap-server h:1 --partition 0 --offset earliest --max-messages 5"
        " --until-end t",
    ),
    ("consume -tt -p0 -o5 -J", "consume --partition 0 --offset 5 --json t"),
    ("consume -t t -K :", "consume --print-key --key-separator : t"),
    ("-P -b h:1 -t t", "produce --bootstrap-server h:1 t"),
    (
        "produce -t t -K : -z gzip -l f -k a -H b=c",
        "produce --key-separator : --compression-codec gzip --file f --key a --header b=c t",
    ),
    ("-L -b h:1", "topics list --bootstrap-server h:1"),
    # rpk
    (
        "topic create t -p 3 -r 1 -c a=b",
        "topics create t --partitions 3 --replication-factor 1 --config a=b",
    ),
    ("consume t -n 5 -o start", "consume t --max-messages 5 --offset earliest"),
    ("group list", "groups list"),
    # The others
    ("transactions --bootstrap-server h:1 list", "transactions list --bootstrap-server h:1"),
    ("kafka-transactions describe --transactional-id x", "transactions show x"),
    ("kafka-dump-log --files f --print-data-log", "log dump --records f"),
    ("kafka-log-dirs --describe --broker-list 1", "brokers describe 1"),
    (
        "kafka-server-start server.properties --override a=b",
        "serve --config server.properties --set a=b",
    ),
    (
        "kafka-producer-perf-test --topic t --num-records 9 --throughput -1"
        " --producer-props acks=1 bootstrap.servers=h:1",
        "perf produce --num-records 9 -X acks=1 --bootstrap-server h:1 t",
    ),
    ("kafka-consumer-perf-test --topic t --messages 9", "perf consume --num-records 9 t"),
)


ANSWERED = (
    ("consume --whitelist t", "no --whitelist here: one topic is read: `oncelog consume TOPIC`"),
    ("consume t --formatter x", "--format takes a template, such as '{key}: {value}'"),
    ("consume t -o stored", "no --offset stored here: --group GROUP starts at the group's"),
    ("consume t --property foo=1", "no --property foo here: it may be print.key, "),
    ("consume t --property line.separator=x", "a record is a line"),
    (
        "configs --describe --entity-type users --entity-name alice",
        "users here: `oncelog users list|add|remove` has who may log in",
    ),
    ("groups reset g --to-datetime 2026-01-01T00:00Z", "`date -d '2026-01-01T00:00Z' +%s000`"),
    ("groups reset g --all-topics", "--topic NAME"),
    ("kafka-acls --add --allow-principal User:a", "`oncelog acls add User:a ...`"),
    ("kafka-acls --add --topic t", "the resource is an argument: topic:t"),
    ("kafka-server-stop", "Ctrl-C"),
    ("serve --port 9093", "`--listen 127.0.0.1:9093`"),
    ("serve -p9093", "`--listen 127.0.0.1:9093`"),
    ("topics --list --topic t", "`oncelog topics describe t` shows one topic"),
    ("topics create t --zookeeper z:1", "--bootstrap-server HOST:PORT"),
    ("topics describe --under-replicated-partitions", "the ISR of each partition"),
    ("topic consume t -n 5", "`oncelog consume TOPIC`"),
    ("-Q -b h:1 -t t", "`oncelog topics describe TOPIC`"),
)

UNTOUCHED = (
    "consume t --group -t --key-separator -b",
    "consume --format '{key}' -- -t",
    "produce t --key -C --file -",
    "topics create --config a=b,c=d t",
    "topics create topics",
    "-h",
    "topics --help",
    "log strays --only x d e",
)

HINTS = (
    ("sevre", "did you mean serve?"),
    ("consumer-group", "did you mean groups?"),
    ("reset-offsets", "did you mean `oncelog groups reset`?"),
    ("find-hanging", "did you mean `oncelog transactions find-hanging`?"),
    ("topics lst", "did you mean list?"),
    ("groups reset-offset", "did you mean reset?"),
    ("topics frobnicate", "see `oncelog topics --help`"),
    ("topics --lst", "did you mean list?"),
    ("consume t --form-beginning", "did you mean --from-beginning?"),
    ("consume t --from-begining", "did you mean --from-beginning?"),
    ("consume t --until", "did you mean --until-end?"),
    ("consume t --consumer-grop g", "did you mean --group?"),
    ("groups lag --grup g", "did you mean `oncelog groups lag GROUP`?"),
    ("perf produce t --num-record 3", "did you mean --num-records?"),
    ("topics list --partitions 3", "`oncelog topics alter` and `oncelog topics create` have it"),
    ("topics list --frobnicate", "see `oncelog topics list --help`"),
)


def walked(line: str) -> tuple[click.Context, list[str], list[str]]:
    """The last command of a line, its words, and its arguments."""
    # Click keeps the help option of a command as the first context makes it.
    ctx = click.Context(main, info_name="oncelog", **main.context_settings)
    args = shlex.split(line)
    path: list[str] = []
    while isinstance(ctx.command, click.Group):
        args = to_command(ctx, args)
        command = ctx.command.get_command(ctx, args[0])
        if command is None:
            break
        name, *args = args
        ctx = click.Context(command, parent=ctx, info_name=name)
        path.append(name)
    return ctx, path, args


def understood(line: str) -> str:
    """The line in our own words."""
    ctx, path, args = walked(line)
    options = args if isinstance(ctx.command, click.Group) else to_options(ctx, args)
    return shlex.join([*path, *options])


@pytest.mark.parametrize(("typed", "ours"), SAME)
def test_a_line_of_another_tool_is_understood(typed: str, ours: str) -> None:
    assert understood(typed) == ours
    assert understood(ours) == ours


@pytest.mark.parametrize(("typed", "answer"), ANSWERED)
def test_what_is_not_understood_is_answered(typed: str, answer: str) -> None:
    with pytest.raises(Advice) as raised:
        understood(typed)
    assert answer in raised.value.message


@pytest.mark.parametrize("line", UNTOUCHED)
def test_a_line_of_ours_stays_as_it_is(line: str) -> None:
    assert understood(line) == shlex.join(shlex.split(line))


@pytest.mark.parametrize(("line", "hint"), HINTS)
def test_an_unknown_word_brings_a_hint(line: str, hint: str) -> None:
    result = CliRunner().invoke(main, shlex.split(line), prog_name="oncelog")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.endswith(f": {hint}\n")


# --- all commands -----------------------------------------------------------------------


def slips(word: str, start: int) -> set[str]:
    """The word with one letter left out, or swapped with the next."""
    places = range(start, len(word))
    return {word[:at] + word[at + 1 :] for at in places} | {
        word[:at] + word[at + 1 : at + 2] + word[at] + word[at + 2 :] for at in places
    }


def test_a_slip_in_a_command_suggests_the_command() -> None:
    for ctx in all_contexts():
        if isinstance(ctx.command, click.Group):
            known = command_names(ctx)
            for name in ctx.command.list_commands(ctx):
                for slip in slips(name, 0) - known.keys() - {""}:
                    hint = hints.for_command(ctx, slip)
                    assert hint.startswith(f"did you mean {name}"), (ctx.command_path, slip)


@pytest.mark.slow
def test_a_slip_in_an_option_suggests_the_option() -> None:
    tried: set[str] = set()
    for ctx in all_contexts():
        if isinstance(ctx.command, click.Group):
            continue
        known = {**own_options(ctx), **option_names(ctx)}
        for name in known.keys() - tried - {"--help"}:
            # A slip in --offsets is at times --offset, which the same command has.
            if not name.startswith("--") or name not in own_options(ctx) or name == "--offsets":
                continue
            tried.add(name)
            for slip in slips(name, 2) - known.keys():
                hint = hints.for_option(ctx, slip)
                assert hint.startswith(f"did you mean {name}"), (ctx.command_path, slip)


def test_each_entry_of_the_table_is_about_commands_that_exist() -> None:
    by_path = {ctx.command_path.partition(" ")[2]: ctx for ctx in all_contexts()}
    for table in (OPTIONS, PAIRS, ANSWERS, NOTHING):
        assert table.keys() <= by_path.keys()
    for path, entries in COMMANDS.items():
        for found in entries.values():
            words = [found.words, found.otherwise] if isinstance(found, Either) else [found]
            for word in words:
                if isinstance(word, str) and not word.startswith("-") and path != "*":
                    assert f"{path} {word}".strip() in by_path


def test_each_target_of_the_table_is_an_option_of_some_command() -> None:
    for path, entries in OPTIONS.items():
        within = [ctx for ctx in all_contexts() if is_within(ctx, path)]
        for name, targets in entries.items():
            for target in targets:
                last = target.split()[-1]
                assert any(last in {**own_options(c), **arguments(c)} for c in within), name
    for path, by_option in PAIRS.items():
        (ctx,) = [ctx for ctx in all_contexts() if ctx.command_path == f"oncelog {path}"]
        for pairs in by_option.values():
            for found in pairs.values():
                assert isinstance(found, Answer) or found.split("=")[0] in own_options(ctx)


def test_no_answer_hides_an_option_that_a_command_has() -> None:
    for table in (ANSWERS, NOTHING):
        for path, entries in table.items():
            for ctx in all_contexts():
                if is_within(ctx, path) and path:
                    assert not own_options(ctx).keys() & set(entries)


def test_all_groups_are_searched_for_a_command() -> None:
    found = [ctx.info_name for ctx in all_contexts() if isinstance(ctx.command, click.Group)]
    assert {"oncelog", *hints.GROUPS} == {*found}


def test_the_help_knows_only_our_own_names() -> None:
    for ctx in all_contexts():
        text = ctx.get_help()
        for other in ("--entity-type", "--broker-list", "--property", "kcat", "--describe"):
            assert other not in text


def all_contexts() -> list[click.Context]:
    """A context of `oncelog` and of every group and command in it."""
    found = [click.Context(main, info_name="oncelog", **main.context_settings)]
    for ctx in found:
        if isinstance(ctx.command, click.Group):
            for name in ctx.command.list_commands(ctx):
                command = ctx.command.get_command(ctx, name)
                assert command is not None
                found.append(click.Context(command, parent=ctx, info_name=name))
    return found


def is_within(ctx: click.Context, path: str) -> bool:
    """Whether it is the command of this path, or in the group of this path."""
    return f"{ctx.command_path} ".startswith(f"oncelog {path}".rstrip() + " ")
