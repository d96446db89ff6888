"""Our rules of ACLs beside Apache Kafka's StandardAuthorizer: random ACLs, the same decisions."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from oncelog.core.acl import Acl, AclOperation, AclPermission, PatternType, ResourceType
from oncelog.security.authorizer import AclRules
from tests.support.peer import java
from tests.unit.security.authorizer_facts import FACTS, SUPER_USERS, acls_of, questions_of

pytestmark = [pytest.mark.interop, pytest.mark.slow]

PROGRAM = Path(__file__).parents[1] / "support" / "java" / "Authorize.java"

PRINCIPALS = ["User:a", "User:b", "User:root", "Group:a"]
ADDRESSES = ["10.0.0.1", "10.0.0.77", "10.1.0.1", "2001:db8::1", "::1"]
# Java writes an address of IPv6 in full, and compares texts.
HOSTS = ["10.0.0.1", "10.0.0.0/24", "10.0.0.0/8", "0:0:0:0:0:0:0:1", "2001:db8::/32", "localhost"]
TYPES = [ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER]
NAMES = ["a", "ab", "abc", "abcd", "b", "ba", "hardcode", "hard", "*"]
OPERATIONS = [one for one in AclOperation if one > AclOperation.ALL]
CASES_COUNT = 400


class Script:
    """What Kafka's authorizer is asked, and what ours says."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.asked: list[str] = []
        self.ours = ""
        self._rules = AclRules()

    def begin(self, acls: list[Acl], super_users: str, *, everyone: bool) -> None:
        self.lines.append(f"new\t{super_users}\t{str(everyone).lower()}")
        for acl in acls:
            words = (part.name if hasattr(part, "name") else part for part in acl)
            self.lines.append("\t".join(["acl", *words]))
        users = (user.strip() for user in super_users.split(";"))
        self._rules = AclRules(acls, users, allow_everyone=everyone)

    def ask(self, who: str, host: str, what: AclOperation, kind: ResourceType, name: str) -> None:
        self.asked.append("\t".join(["ask", who, host, what.name, kind.name, name]))
        self.lines.append(self.asked[-1])
        self.ours += "01"[self._rules.allows(who, host, what, kind, name)]

    def ask_any(self, who: str, host: str, what: AclOperation, kind: ResourceType) -> None:
        self.asked.append("\t".join(["any", who, host, what.name, kind.name]))
        self.lines.append(self.asked[-1])
        self.ours += "01"[self._rules.allows_any(who, host, what, kind)]

    def judged(self, class_path: str) -> str:
        """Return what Kafka says to the same questions."""
        command = [java(), "-XX:TieredStopAtLevel=1", "-cp", class_path, str(PROGRAM)]
        done = subprocess.run(
            command, input="\n".join(self.lines), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout.split("answers ")[1].strip()


def drawn(rng: random.Random) -> Acl:
    return Acl(
        rng.choice(TYPES[:2]),
        rng.choice(NAMES),
        rng.choice([PatternType.LITERAL, PatternType.PREFIXED]),
        rng.choice(["User:*", "User:a", "User:a", "User:b", "Group:a"]),
        rng.choice(["*", "*", "*", *HOSTS]),
        rng.choice([AclOperation.ALL, AclOperation.READ, AclOperation.WRITE, *OPERATIONS]),
        rng.choice([AclPermission.ALLOW, AclPermission.ALLOW, AclPermission.DENY]),
    )


def test_decisions_are_those_of_kafka_s_standard_authorizer(java_class_path: str) -> None:
    script, rng = Script(), random.Random(43)
    for fact in FACTS:
        script.begin(acls_of(fact.acls), SUPER_USERS, everyone=fact.allow_everyone)
        for _, who, host, what, kind, name in questions_of(fact.answers):
            if name is None:
                script.ask_any(who, host, what, kind)
            else:
                script.ask(who, host, what, kind, name)
    for _ in range(CASES_COUNT):
        acls = list({drawn(rng) for _ in range(rng.randrange(9))})
        script.begin(acls, "User:root", everyone=rng.random() < 0.3)
        for _ in range(30):
            who, host, what = rng.choice(PRINCIPALS), rng.choice(ADDRESSES), rng.choice(OPERATIONS)
            kind = rng.choice(TYPES)
            script.ask(who, host, what, kind, rng.choice([*NAMES, "abcde", "c"]))
            script.ask_any(who, host, what, kind)
    theirs = script.judged(java_class_path)
    assert len(theirs) == len(script.ours)
    differing = [
        f"{line} Kafka: {other}"
        for line, own, other in zip(script.asked, script.ours, theirs, strict=True)
        if own != other
    ]
    assert differing == []
    assert "0" in theirs
    assert "1" in theirs
