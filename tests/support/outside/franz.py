"""franz-go's tests of its client (`pkg/kgo`), from the Go module that `tests/interop/franz` names.

What its CI bounds by the size of its machine is bounded here by `records`. Its tests of SCRAM and
OAUTHBEARER have a listener of their own, as in its CI. All others know no login, and can use TLS
with a client's certificate.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Final

from tests.support.go_program import USUAL_PLACE
from tests.support.outside.secured import PASSWORD, USER
from tests.support.outside.suites import (
    BROKERS_COUNT,
    Running,
    Scenario,
    Security,
    Suite,
    SuiteUnavailable,
    Verdict,
    Verdicts,
    run_bounded,
)
from tests.support.peer.kafka import ROOT

MODULE: Final = ROOT / "tests" / "interop" / "franz"
NAME: Final = "github.com/twmb/franz-go"
PROGRAM: Final = ROOT / ".cache" / "go" / "franz"
BUILD_S_MAX: Final = 1200
RUN_S_MAX: Final = 1800
"""Of all tests that one process runs; which of them ran then is told, and the others run anew."""
LOGS_IN: Final = re.compile(r"scramSeeds|oauthSeeds")
SPEAKS: Final = re.compile(r"adm\(\)|newTestClient|testClientOpts|getSeedBrokers|tmpTopic")
"""What a test calls that speaks to a cluster; the others speak to nobody, or to a fake."""
ENDED: Final = re.compile(r"^\s*--- (PASS|FAIL|SKIP): (\S+)", re.MULTILINE)
STILL_RUNNING: Final = re.compile(r"^\t(Test\S+) \(", re.MULTILINE)
VERDICTS: Final[dict[str, Verdict]] = {"PASS": "passed", "FAIL": "failed", "SKIP": "skipped"}


class Franz(Suite):
    """Raises `SuiteUnavailable` where Go or the module cannot be had."""

    name: ClassVar[str] = "franz-go"

    def __init__(self, records: int, security: Security = "none") -> None:
        super().__init__(security)
        self._records = records
        self._go = shutil.which("go") or USUAL_PLACE
        try:
            told = self._ask("mod", "download", "-json", NAME, timeout_s=BUILD_S_MAX)
            module: dict[str, str] = json.loads(told)
            self._folder, self._version = module["Dir"], module["Version"]
            self.program = PROGRAM.with_name(f"{PROGRAM.name}-{self._version}.test")
            if not self.program.exists():
                PROGRAM.parent.mkdir(parents=True, exist_ok=True)
                command = ("test", "-c", "-o", str(self.program), f"{NAME}/pkg/kgo")
                self._ask(*command, timeout_s=BUILD_S_MAX)
        except (OSError, subprocess.SubprocessError) as error:
            said = getattr(error, "stderr", None) or str(error)
            raise SuiteUnavailable(f"franz-go's tests cannot be built: {said.strip()}") from error

    @property
    def version(self) -> str:
        return self._version

    def scenarios(self, only: Sequence[str]) -> list[Scenario]:
        package = Path(self._folder) / "pkg" / "kgo"
        sources = [path.read_text() for path in sorted(package.glob("*_test.go"))]
        found = [Scenario("default", _wanted(sources, SPEAKS, only))]
        if self.security != "none":
            found = [Scenario("logins", _wanted(sources, LOGS_IN, only), is_secured=True)]
        if self.security == "all":
            found.append(Scenario("tls", _wanted(sources, SPEAKS, only), is_secured=True))
        return [each for each in found if each.tests]

    def run(self, scenario: Scenario, running: Running, folder: Path) -> Iterator[Verdicts]:
        variables = {
            "KGO_SEEDS": running.cluster.bootstrap_servers,
            "KGO_TEST_RF": str(BROKERS_COUNT),
            "KGO_TEST_RECORDS": str(self._records),
            "KGO_LOG_LEVEL": "none",
        }
        if running.ways is not None:
            seeds, files = running.ways.servers("SASL"), running.ways.files
            variables |= {"KGO_TEST_SCRAM_SEEDS": seeds, "KGO_TEST_OAUTH_SEEDS": seeds}
            variables["KGO_TEST_SCRAM"] = f"{USER}:{PASSWORD}"
            if scenario.name == "tls":
                variables["KGO_SEEDS"] = running.ways.servers("TLS")
                shown = {"ca": "ca_pem", "cert": "pub_pem", "key": "priv_plain"}
                parts = (f"{name}:{files[which]}" for name, which in shown.items())
                variables["KGO_TEST_TLS"] = ",".join(parts)
        left = list(scenario.tests)
        while left:
            log = folder / f"franz-{len(left)}.log"
            pattern = f"^({'|'.join(left)})$"
            options = (f"-test.run={pattern}", f"-test.timeout={RUN_S_MAX}s", "-test.v")
            run_bounded((str(self.program), *options), folder, variables, log, RUN_S_MAX + 60)
            verdicts = verdicts_of(log.read_text(errors="replace"), left)
            yield verdicts
            left = [test for test in left if test not in verdicts]

    def _ask(self, *arguments: str, timeout_s: int) -> str:
        environment = os.environ | {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": ""}
        done = subprocess.run(
            (self._go, *arguments),
            cwd=MODULE,
            env=environment,
            timeout=timeout_s,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout


def calling(sources: Iterable[str], kind: re.Pattern[str]) -> list[str]:
    """The tests in Go files that call, or use, one of these."""
    found = []
    for source in sources:
        for part in source.split("\nfunc ")[1:]:
            name = part.partition("(")[0]
            if name.startswith("Test") and kind.search(part):
                found.append(name)
    return found


def _wanted(sources: Iterable[str], kind: re.Pattern[str], only: Sequence[str]) -> tuple[str, ...]:
    return tuple(test for test in calling(sources, kind) if not only or test in only)


def verdicts_of(said: str, asked: Sequence[str]) -> Verdicts:
    """What a process told of its tests, parts of tests included.

    A process that told of none has died or was ended in the first of those asked.
    """
    found: Verdicts = {name: VERDICTS[word] for word, name in ENDED.findall(said)}
    for name in STILL_RUNNING.findall(said.partition("running tests:")[2]):
        found[name] = "unfinished"
        found[name.partition("/")[0]] = "unfinished"
    if not any(name in found for name in asked):
        found[asked[0]] = "unfinished"
    return found
