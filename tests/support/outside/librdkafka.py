"""librdkafka's tests: those that speak to brokers, each of its files in a process of its own.

`LIBRDKAFKA_TESTS` names the folder ``tests`` of a tree of librdkafka whose tests are built
(``test-runner``). Its tests of a mock cluster (`-L`) are left out: they speak to nobody else.
A build by CMake has to name its sources as one by make, since ``0077`` names a topic by its own:
``-fmacro-prefix-map=$PWD/tests/=``. Those of the statistics need ``-DWITH_RAPIDJSON=1``, and those
that log in or use TLS OpenSSL (``./configure --disable-gssapi --disable-curl && make -j2 libs &&
make -j2 -C tests build`` has it).

Tests of ACLs run in plain text, as they call Apache's tools without a login. What logs in does so
by SASL_SSL and SCRAM-SHA-512, in tests of logins again every 10 s.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

from tests.support.outside.secured import KEY_PASSWORD, PASSWORD, USER, Ways
from tests.support.outside.suites import (
    Running,
    Scenario,
    Security,
    Suite,
    SuiteUnavailable,
    Verdict,
    Verdicts,
    run_bounded,
)
from tests.support.peer.kafka import CACHE, jars, java, release

VARIABLE: Final = "LIBRDKAFKA_TESTS"
WITHOUT_TOPICS: Final = ("0045", "0107", "0111")
"""These have tests of librdkafka's scenario ``noautocreate``."""
OF_ACLS: Final = ("0081", "0109", "0115", "0119")
OF_LOGINS: Final = ("0081", "0135", "0142")
OF_TLS: Final = ("0097",)
OF_TOKENS: Final = ("0142",)
SESSIONS: Final = {"connections.max.reauth.ms": "10000"}
"""How long a login lasts in tests of logins; those of throughput would come too late."""
APART: Final = ("0081", "0135", "0142")
"""These files end with the first part that fails; each has parts that need what not all have."""
PART: Final = re.compile(r"^(?:static )?(?:void )?(do_test(?!_apis)\w*)\(", re.MULTILINE)
TEST_S_MAX: Final = 1200
"""Of a file's tests. Those of ``0113`` take 11 minutes on any broker, most of it in sleeps."""
TIMEOUT_MULTIPLIER: Final = 2
"""That of librdkafka's own CI."""
VERDICTS: Final[Mapping[str, Verdict]] = {
    "PASSED": "passed",
    "FAILED": "failed",
    "RUNNING": "unfinished",
}
TOOLS: Final = {
    "kafka-run-class.sh": "",
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs.sh": "org.apache.kafka.tools.ConfigCommand",
    "kafka-acls.sh": "org.apache.kafka.tools.AclCommand",
    "kafka-consumer-groups.sh": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
}


class Way(NamedTuple):
    """A listener, and what clients are told beside its addresses."""

    listener: str
    lines: tuple[str, ...] = ()


_LOGIN: Final = (f"sasl.username={USER}", f"sasl.password={PASSWORD}")
_SASL_SSL: Final = ("security.protocol=sasl_ssl", "sasl.mechanism=SCRAM-SHA-512", *_LOGIN)
WAYS: Final = {
    "sasl_ssl": Way("SASLTLS", _SASL_SSL),
    "rest": Way("SASLTLS", _SASL_SSL),
    "oauthbearer": Way(
        "SASL",
        (
            "security.protocol=sasl_plaintext",
            "sasl.mechanism=OAUTHBEARER",
            "sasl.oauthbearer.config=principal=admin scope=requiredScope",
            "enable.sasl.oauthbearer.unsecure.jwt=true",
        ),
    ),
    "ssl": Way("TLS", ("security.protocol=ssl",)),
}
"""By the name of the scenario; clients of the others reach the plain listener."""
PLAIN: Final = Way("PLAINTEXT")


class Librdkafka(Suite):
    """Raises `SuiteUnavailable` where no built tests are named."""

    name: ClassVar[str] = "librdkafka"

    def __init__(self, security: Security = "none") -> None:
        super().__init__(security)
        self._parts_wanted: set[str] = set()
        named = os.environ.get(VARIABLE)
        if named is None:
            raise SuiteUnavailable(f"{VARIABLE} does not name the folder of its built tests")
        self.folder = Path(named)
        if not (self.folder / "test-runner").exists():
            raise SuiteUnavailable(f"there is no test-runner in {named}")

    @property
    def version(self) -> str:
        header = (self.folder.parent / "src" / "rdkafka.h").read_text()
        (line,) = (text for text in header.splitlines() if "#define RD_KAFKA_VERSION " in text)
        number = int(line.split()[-1], 16)
        return f"{number >> 24}.{number >> 16 & 255}.{number >> 8 & 255}"

    def scenarios(self, only: Sequence[str]) -> list[Scenario]:
        sources = [*self.folder.glob("0*.c"), *self.folder.glob("0*.cpp")]
        numbers = sorted({path.name[:4] for path in sources})
        named = {each.partition("/")[0] for each in only}
        wanted = tuple(number for number in numbers if not only or number in named)
        self._parts_wanted = {each for each in only if "/" in each}
        never = {"auto.create.topics.enable": "false"}
        found = [
            Scenario("default", self._of(wanted, numbers)),
            Scenario("noautocreate", self._of(wanted, WITHOUT_TOPICS), never),
        ]
        if self.security != "none":
            found = [
                self._secured("acls", wanted, OF_ACLS),
                self._secured("ssl", wanted, OF_TLS),
                self._secured("oauthbearer", wanted, OF_TOKENS, SESSIONS),
                self._secured("sasl_ssl", wanted, OF_LOGINS, SESSIONS),
            ]
        if self.security == "all":
            apart = (*OF_ACLS, *OF_LOGINS, *OF_TLS)
            rest = [number for number in wanted if number not in apart]
            found.append(self._secured("rest", wanted, rest))
        return [each for each in found if each.tests]

    def run(self, scenario: Scenario, running: Running, folder: Path) -> Iterator[Verdicts]:
        cluster, ways = running.cluster, running.ways
        way = WAYS.get(scenario.name, PLAIN)
        servers = cluster.bootstrap_servers if ways is None else ways.servers(way.listener)
        libraries = (self.folder.parent / name for name in ("src", "src-cpp"))
        variables = {
            "LD_LIBRARY_PATH": ":".join(map(str, libraries)),
            "RDKAFKA_TEST_CONF": str(configuration(folder, scenario.name, servers, ways)),
            "TEST_SCENARIO": "noautocreate" if scenario.name == "noautocreate" else "default",
            "TEST_KAFKA_VERSION": release(),
            "KAFKA_PATH": str(tools(folder)),
            "KAFKA_JARS": str(CACHE),
            "BROKERS": cluster.bootstrap_servers,
        }
        if ways is not None:
            variables |= {f"SSL_{name}": path for name, path in ways.files.items()}
            variables["SSL_password"] = KEY_PASSWORD
        addresses = servers.split(",")
        for broker_id, broker in cluster.brokers.items():
            variables[f"BROKER_ADDRESS_{broker_id}"] = addresses[broker_id - 1]
            variables[f"BROKER_PID_{broker_id}"] = str(broker.pid)
        for test in scenario.tests:
            number, _, part = test.partition("/")
            report = folder / f"{number}-{scenario.name}.json"
            report.unlink(missing_ok=True)
            given = {**variables, "TESTS": number, "TEST_REPORT": str(report)}
            if part:
                # A part is named with the line where it begins.
                given["SUBTESTS"] = f"{part}:"
            log = folder / f"{number}-{scenario.name}.log"
            run_bounded(["./test-runner", "-L"], self.folder, given, log, TEST_S_MAX)
            verdicts = verdicts_of(report, number)
            yield {f"{name}/{part}" if part else name: each for name, each in verdicts.items()}

    def _secured(
        self,
        name: str,
        wanted: Sequence[str],
        numbers: Sequence[str],
        settings: Mapping[str, str] | None = None,
    ) -> Scenario:
        tests = self._of(wanted, numbers)
        return Scenario(name, tests, settings or {}, is_secured=True, prefix=f"{name} ")

    def _of(self, wanted: Sequence[str], numbers: Sequence[str]) -> tuple[str, ...]:
        """The tests of files that are wanted and among these."""
        found = [each for one in wanted if one in numbers for each in self._parts(one)]
        parts = self._parts_wanted
        return tuple(each for each in found if "/" not in each or not parts or each in parts)

    def _parts(self, number: str) -> list[str]:
        """How the tests of a file are named here: its number, or that and each part's name."""
        if number not in APART:
            return [number]
        (source,) = self.folder.glob(f"{number}-*.c*")
        return [f"{number}/{part}" for part in dict.fromkeys(PART.findall(source.read_text()))]


def verdicts_of(report: Path, number: str) -> Verdicts:
    """What a run's report says of a file's tests; its process died or was ended if it has none."""
    if not report.exists():
        return {number: "unfinished"}
    tests: dict[str, Any] = json.loads(report.read_text())["tests"]
    found = {name: VERDICTS.get(each["state"], "skipped") for name, each in tests.items()}
    return {name: verdict for name, verdict in found.items() if name.startswith(number)}


def configuration(folder: Path, scenario: str, servers: str, ways: Ways | None) -> Path:
    """The file that tells the tests where the brokers are, and how they get in."""
    path = folder / f"{scenario}.conf"
    lines = [
        f"bootstrap.servers={servers}",
        "broker.address.family=v4",
        f"test.timeout.multiplier={TIMEOUT_MULTIPLIER}",
    ]
    if ways is not None and scenario in WAYS:
        lines += [
            *WAYS[scenario].lines,
            f"ssl.ca.location={ways.files['ca_pem']}",
            f"ssl.certificate.location={ways.files['pub_pem']}",
            f"ssl.key.location={ways.files['priv_pem']}",
            f"ssl.key.password={KEY_PASSWORD}",
        ]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def tools(folder: Path) -> Path:
    """Apache's tools under the names and at the place where the tests call them."""
    scripts = folder / "kafka" / "bin"
    scripts.mkdir(parents=True, exist_ok=True)
    for name, main_class in TOOLS.items():
        path = f"$CLASSPATH:{jars()}"
        command = f'exec {java()} -XX:TieredStopAtLevel=1 -cp "{path}" {main_class} "$@"'
        (scripts / name).write_text(f"#!/bin/sh\n{command}\n")
        (scripts / name).chmod(0o755)
    return scripts.parent
