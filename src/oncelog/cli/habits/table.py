"""The spellings of Kafka's tools, kcat and rpk that are understood, or have an answer of their own.

Data alone. A command's path ("groups reset", "" for all) chooses the entries; those of the longer
path come first, and a name that the command itself has is never looked up here. A name is tried
with every target in turn: the first that the command has is meant.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

__all__ = [
    "ANSWERS",
    "COMMANDS",
    "FILES",
    "MANY",
    "NOTHING",
    "OPTIONS",
    "PAIRS",
    "SHARED",
    "VALUES",
    "WITH_PARTITIONS",
    "Answer",
    "Either",
]


class Answer(NamedTuple):
    """It is not done; `text` says what is instead. ``{value}`` is the value that was given."""

    text: str


class Either(NamedTuple):
    """The command `words` if one of `options` is given, else the command `otherwise`."""

    options: frozenset[str]
    words: str
    otherwise: str


COMMANDS: Final[Mapping[str, Mapping[str, str | Either | Answer]]] = {
    "": {
        # Kafka's tools, without kafka- and .sh. Those with our names need no entry.
        "console-consumer": "consume",
        "console-producer": "produce",
        "consumer-groups": "groups",
        "consumer-perf-test": "perf consume",
        "delete-records": "topics delete-records",
        "dump-log": "log dump",
        "get-offsets": "topics describe",
        "log-dirs": "brokers describe",
        "producer-perf-test": "perf produce",
        "server-start": "serve",
        "server-stop": Answer("`oncelog serve` stops by Ctrl-C, or SIGTERM"),
        "broker-api-versions": Answer("`oncelog features describe` shows what brokers support"),
        "metadata-quorum": Answer("`oncelog brokers list` shows which broker is the controller"),
        "storage": Answer("`oncelog serve --data-dir DIR` makes its folder itself"),
        "leader-election": Answer("`oncelog topics describe TOPIC` shows the leaders"),
        "reassign-partitions": Answer("`oncelog topics describe TOPIC` shows the replicas"),
        "zookeeper-server-start": Answer("`oncelog serve` alone is enough on one machine"),
        # kcat's modes
        "-C": "consume",
        "-G": Answer("`oncelog consume TOPIC --group GROUP`"),
        "-L": "topics list",
        "-P": "produce",
        "-Q": Answer("`oncelog topics describe TOPIC` shows the first and next offsets"),
        # rpk and others
        "broker": "brokers",
        "config": "configs",
        "consumer": "consume",
        "feature": "features",
        "group": "groups",
        "help": "--help",
        "logs": "log",
        "producer": "produce",
        "server": "serve",
        "start": "serve",
        "topic": "topics",
        "transaction": "transactions",
        "txn": "transactions",
        "version": "--version",
        "-V": "--version",
        "-v": "--version",
    },
    "*": {
        "desc": "describe",
        "info": "describe",
        "ls": "list",
        "rm": Answer("`delete` deletes"),
        "show": "describe",
    },
    "configs": {"get": "describe", "set": "alter"},
    "groups": {
        "delete-offsets": "delete",
        "describe": Either(frozenset({"--members", "--state"}), "show", "lag"),
        "members": "show",
        "offsets": "lag",
        "reset-offsets": "reset",
        "seek": "reset",
    },
    "perf": {"consumer": "consume", "producer": "produce"},
    "topics": {
        "consume": Answer("`oncelog consume TOPIC`"),
        "produce": Answer("`oncelog produce TOPIC`"),
    },
    "transactions": {
        "describe": "show",
        "describe-producers": Answer("`oncelog transactions watch` shows who has what open"),
        "force-terminate": "abort",
        "forceTerminateTransaction": "abort",
    },
}
"""By group: a word in place of a command, with or without dashes, and the command. "*": any group.

An option in place of the command goes to the end, behind the command whose help is asked for.
"""

SHARED: Final[Mapping[str, bool]] = {
    "--bootstrap-server": True,
    "--command-config": True,
    "-X": True,
    "--log-level": True,
    "--log-format": True,
    "--json": False,
}
"""Options of most commands, which may stand before them too; whether each takes a value."""

OPTIONS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "": {
        "--bootstrap": ("--bootstrap-server",),
        "--bootstrap-servers": ("--bootstrap-server",),
        "--broker": ("--bootstrap-server",),
        "--broker-list": ("--bootstrap-server",),
        "--brokers": ("--bootstrap-server",),
        "-b": ("--bootstrap-server",),
        "--consumer.config": ("--command-config",),
        "--producer.config": ("--command-config",),
        "-F": ("--command-config",),
        "--command-property": ("-X",),
        "--consumer-property": ("-X",),
        "--producer-property": ("-X",),
        "--producer-props": ("-X",),
        "--topic": ("TOPIC",),
        "-t": ("TOPIC", "--topic"),
        "--partition": ("--partitions",),
        "-p": ("--partition", "--partitions"),
        "--group": ("GROUP",),
        "--consumer-group": ("GROUP", "--group"),
        "--group-id": ("GROUP", "--group"),
        "-g": ("GROUP", "--group"),
        "-G": ("GROUP", "--group"),
        "--transactional-id": ("ID",),
        "-o": ("--offset",),
        "-n": ("--max-messages", "--num-records", "--count"),
        "--num": ("--max-messages", "--num-records"),
        "--count": ("--max-messages", "--num-records", "--num-transactions"),
        "--messages": ("--num-records",),
        "-c": ("--max-messages", "--config"),
        "-r": ("--replication-factor",),
        "-f": ("--format",),
        "-J": ("--json",),
        "-y": ("--yes",),
        "--files": ("PATH",),
        "--timeout": ("--timeout-ms",),
    },
    "acls": {
        "--allow-host": ("--host",),
        "--deny-host": ("--host",),
        "--principal": ("--user",),
    },
    "configs": {
        "--entity-type": ("topic|broker|group",),
        "--entity-name": ("NAME",),
        "--add-config": ("--config",),
        "--topic": ("topic NAME",),
        "-t": ("topic NAME",),
        "--broker": ("broker NAME",),
        "--group": ("group NAME",),
    },
    "consume": {
        "-e": ("--until-end",),
        "-K": ("--print-key --key-separator",),
    },
    "brokers describe": {"--broker-list": ("BROKER",)},
    "log dump": {"--print-data-log": ("--records",)},
    "produce": {
        "-H": ("--header",),
        "-K": ("--key-separator",),
        "-k": ("--key",),
        "-l": ("--file",),
        "-z": ("--compression-codec",),
    },
    "serve": {
        "--override": ("--set",),
        "--log-dirs": ("--data-dir",),
        "--log.dirs": ("--data-dir",),
        "--data": ("--data-dir",),
    },
}
"""An option, and what it may be here: an option, or an argument (its name in capitals).

Of several words the last takes the value.
"""

PAIRS: Final[Mapping[str, Mapping[str, Mapping[str, str | Answer]]]] = {
    "consume": {
        option: {
            "print.key": "--print-key",
            "print.timestamp": "--print-timestamp",
            "print.partition": "--print-partition",
            "print.offset": "--print-offset",
            "print.headers": "--print-headers",
            "key.separator": "--key-separator",
            "line.separator": Answer("a record is a line; --format takes a template"),
            "print.value": Answer("--format takes a template, such as '{{key}}'"),
        }
        for option in ("--property", "--formatter-property")
    },
    "produce": {
        option: {
            "parse.key": r"--key-separator=\t",
            "key.separator": "--key-separator",
            "null.marker": "--null-marker",
            "parse.headers": Answer("--header NAME=VALUE, or --format json"),
        }
        for option in ("--property", "--reader-property")
    },
}
"""By command: an option with KEY=VALUE, and the option that each key is here.

The value goes to an option that takes one; "true" is a flag, or an option that has its value.
"""

VALUES: Final[Mapping[str, Mapping[str, str | Answer | None]]] = {
    "--acks": {"-1": "all"},
    "--offset": {
        "beginning": "earliest",
        "start": "earliest",
        "end": "latest",
        "stored": Answer("--group GROUP starts at the group's committed offsets"),
    },
    "--request-required-acks": {"-1": "all"},
    "--throughput": {"-1": None},
    "topic|broker|group": {
        "topics": "topic",
        "brokers": "broker",
        "groups": "group",
        "users": Answer("`oncelog users list|add|remove` has who may log in"),
    },
}
"""Of an option or argument: a value, and what it is called here. None: the option is left out."""

MANY: Final = frozenset({"--add-config", "--delete-config", "--producer-props"})
"""Options with several values: between commas, or (the last) as words."""

NOTHING: Final[Mapping[str, frozenset[str]]] = {
    "acls remove": frozenset({"--force"}),
    "brokers describe": frozenset({"--describe"}),
    "consume": frozenset({"-q", "-u"}),
    "groups lag": frozenset({"--all-groups", "--offsets", "--verbose"}),
    "groups reset": frozenset({"--dry-run"}),
    "groups show": frozenset({"--members", "--state", "--verbose"}),
    "log dump": frozenset({"--deep-iteration", "--offsets-decoder", "--transaction-log-decoder"}),
    "produce": frozenset({"--sync"}),
    "topics list": frozenset({"--exclude-internal"}),
    "topics describe": frozenset({"--exclude-internal"}),
}
"""By command: options without a value that ask for what is done anyway."""

WITH_PARTITIONS: Final = ("--topic", "--partition")
"""A value of the first may end in numbers (orders:0,1), which are values of the second here."""

FILES: Final[Mapping[str, str]] = {"serve": "--config"}
"""By command: the option that takes a .properties file that stands there without one."""

ANSWERS: Final[Mapping[str, Mapping[str, Answer]]] = {
    "": {
        "--zookeeper": Answer("brokers are asked, at --bootstrap-server HOST:PORT"),
    },
    "acls": {
        "--allow-principal": Answer("the user is an argument: `oncelog acls add {value} ...`"),
        "--cluster": Answer("the resource is an argument: cluster"),
        "--consumer": Answer("consume is one of OPERATIONS"),
        "--deny-principal": Answer("the user is an argument, with --deny behind: {value}"),
        "--group": Answer("the resource is an argument: group:{value}"),
        "--operation": Answer("operations are an argument, with commas between them: {value}"),
        "--producer": Answer("produce is one of OPERATIONS"),
        "--resource-pattern-type": Answer("a prefix is written with an asterisk: topic:orders-*"),
        "--topic": Answer("the resource is an argument: topic:{value}"),
        "--transactional-id": Answer("the resource is an argument: transactional-id:{value}"),
    },
    "configs": {
        "--add-config-file": Answer("--config KEY=VALUE sets one setting; repeat it"),
        "--entity-default": Answer("defaults are in the file that `oncelog serve --config` reads"),
    },
    "consume": {
        "--formatter": Answer("--format takes a template, such as '{{key}}: {{value}}'"),
        "--include": Answer("one topic is read: `oncelog consume TOPIC`"),
        "--key-deserializer": Answer("bytes are printed as they are; --json prints any bytes"),
        "--topics": Answer("one topic is read: `oncelog consume TOPIC`"),
        "--value-deserializer": Answer("bytes are printed as they are; --json prints any bytes"),
        "--whitelist": Answer("one topic is read: `oncelog consume TOPIC`"),
        "-D": Answer("a record is a line; --format takes a template"),
        "-s": Answer("bytes are printed as they are; --json prints any bytes"),
    },
    "features": {
        "--metadata": Answer("levels are set one by one: --feature NAME=LEVEL"),
        "--release-version": Answer("levels are set one by one: --feature NAME=LEVEL"),
    },
    "groups delete": {"--all-groups": Answer("name the groups: `oncelog groups delete GROUP...`")},
    "groups reset": {
        "--all-groups": Answer("name the group: `oncelog groups reset GROUP`"),
        "--all-topics": Answer("name the topic: --topic NAME"),
        "--by-duration": Answer("--to-timestamp MS takes a time, in ms since 1970"),
        "--from-file": Answer("--to-offset N, --topic and --partition set one partition's offset"),
        "--to-current": Answer("--shift-by 0 keeps the committed offsets"),
        "--to-datetime": Answer("--to-timestamp takes ms since 1970: `date -d '{value}' +%s000`"),
    },
    "groups show": {"--all-groups": Answer("`oncelog groups list` shows all groups")},
    "log dump": {
        "--index-sanity-check": Answer("`oncelog log verify PATH` checks the indexes"),
        "--verify-index-only": Answer("`oncelog log verify PATH` checks the indexes"),
    },
    "perf": {
        "--payload-file": Answer("records are random; --record-size gives their size"),
        "--print-metrics": Answer("`oncelog metrics` prints what a broker counts"),
    },
    "produce": {
        "-D": Answer("a line is a record"),
        "-T": Answer("--json prints where each record went"),
        "-Z": Answer("--null-marker TEXT gives the text that stands for none"),
    },
    "serve": {
        "-daemon": Answer("`nohup oncelog serve &` runs it in the background"),
        "--bootstrap-server": Answer("a broker listens: `--listen {value}`"),
        "--host": Answer("`--listen {value}:9092`"),
        "--port": Answer("`--listen 127.0.0.1:{value}`"),
        "-p": Answer("`--listen 127.0.0.1:{value}`"),
    },
    "topics alter": {"--replica-assignment": Answer("brokers choose where replicas are")},
    "topics create": {
        "--replica-assignment": Answer("brokers choose where replicas are: --replication-factor N")
    },
    "topics delete-records": {
        "--offset-json-file": Answer("--before-offset N, and --partition N for one partition")
    },
    "topics describe": {
        option: Answer("it shows the leader, the replicas and the ISR of each partition")
        for option in (
            "--at-min-isr-partitions",
            "--under-min-isr-partitions",
            "--under-replicated-partitions",
            "--unavailable-partitions",
        )
    }
    | {
        "--time": Answer("it shows the first and the next offset of each partition"),
        "--topics-with-overrides": Answer("`oncelog configs describe topic` shows them"),
    },
    "topics list": {
        "--topic": Answer("`oncelog topics describe {value}` shows one topic"),
        "-t": Answer("`oncelog topics describe {value}` shows one topic"),
    },
}
"""By command: options that are not understood, with what does the same here."""
