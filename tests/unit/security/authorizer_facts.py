"""Who may do what by which ACLs: facts from Apache's AuthorizerTest and StandardAuthorizerTest.

An ACL is ``allow|deny PRINCIPAL HOST OPERATION RESOURCE``, a resource ``type:name``, with ``type~``
for a prefix; a principal without a type is a user. A question is ``yes|no PRINCIPAL HOST OPERATION
RESOURCE``, or just a type for any resource of it.
"""

from __future__ import annotations

from typing import NamedTuple

from oncelog.core.acl import Acl, AclOperation, AclPermission, PatternType, ResourceType


class Fact(NamedTuple):
    """What follows from some ACLs, one a line."""

    title: str
    acls: str
    answers: str
    allow_everyone: bool = False


class Question(NamedTuple):
    """What is asked; without a name it is about any resource of the type."""

    is_allowed: bool
    principal: str
    host: str
    operation: AclOperation
    resource_type: ResourceType
    name: str | None


SUPER_USERS = "User:superuser1; User:superuser2"


def acls_of(text: str) -> list[Acl]:
    """Return the ACLs of a fact."""
    return [acl_of(line) for line in text.splitlines() if line.strip()]


def acl_of(line: str) -> Acl:
    """Return one ACL."""
    permission, principal, host, operation, resource = line.split()
    kind, _, name = resource.partition(":")
    is_prefix = kind.endswith("~")
    return Acl(
        ResourceType[kind.rstrip("~").upper()],
        name,
        PatternType.PREFIXED if is_prefix else PatternType.LITERAL,
        _principal(principal),
        host,
        AclOperation[operation],
        AclPermission[permission.upper()],
    )


def questions_of(text: str) -> list[Question]:
    """Return the questions of a fact."""
    found = []
    for line in filter(None, map(str.strip, text.splitlines())):
        answer, principal, host, operation, resource = line.split()
        kind, colon, name = resource.partition(":")
        found.append(
            Question(
                answer == "yes",
                _principal(principal),
                host,
                AclOperation[operation],
                ResourceType[kind.upper()],
                name if colon else None,
            )
        )
    return found


def _principal(text: str) -> str:
    return text if ":" in text else f"User:{text}"


def _implied(permission: str, operation: str, others: str) -> Fact:
    allows = permission == "allow"
    acls = f"{permission} alice * {operation} cluster:kafka-cluster"
    if not allows:
        acls += "\nallow alice * ALL cluster:kafka-cluster"
    covered = {operation, *others.split()}
    if operation == "ALL":
        covered = {one.name for one in AclOperation}
    answers = "\n".join(
        f"{'yes' if (one.name in covered) is allows else 'no'} alice 192.168.3.1 {one.name} "
        "cluster:kafka-cluster"
        for one in AclOperation
        if one > AclOperation.ANY
    )
    return Fact(f"{permission} {operation} is about {others or 'itself'}", acls, answers)


FACTS = [
    Fact(
        "no ACLs deny", "", "no alice 192.168.0.1 READ topic:foo\nno alice 192.168.0.1 READ topic"
    ),
    Fact(
        "no ACLs allow where everyone may",
        "",
        "yes alice 1.1.1.1 READ topic:foo\nyes alice 1.1.1.1 READ topic\nyes a 1.1.1.1 WRITE topic",
        allow_everyone=True,
    ),
    Fact(
        "an ACL on the resource ends that everyone may",
        "allow bob * READ topic:foo\nallow bob * READ topic~:b",
        "no alice 1.1.1.1 READ topic:foo\nyes alice 1.1.1.1 READ topic:fo\n"
        "no alice 1.1.1.1 READ topic:bar\nyes alice 1.1.1.1 READ group:foo",
        allow_everyone=True,
    ),
    Fact(
        "an ACL on all resources ends that everyone may",
        "allow bob * READ topic:*",
        "no alice 1.1.1.1 READ topic:foo\nno alice 1.1.1.1 READ topic",
        allow_everyone=True,
    ),
    Fact(
        "a resource without a name is one of all",
        "allow alice 192.168.0.1 READ group:*",
        "yes alice 192.168.0.1 READ group:",
    ),
    Fact(
        "a topic's ACLs by host",
        """
        allow alice 192.168.1.1 READ topic:foo
        allow alice 192.168.1.2 READ topic:foo
        deny alice 192.168.1.1 READ topic:foo
        allow alice 192.168.1.1 WRITE topic:foo
        allow alice * DESCRIBE topic:foo
        allow rob * READ topic:foo
        allow batman * WRITE topic:foo
        """,
        """
        yes alice 192.168.1.2 READ topic:foo
        no alice 192.168.1.1 READ topic:foo
        yes alice 192.168.1.1 WRITE topic:foo
        no alice 192.168.1.2 WRITE topic:foo
        yes alice 192.168.1.1 DESCRIBE topic:foo
        yes alice 192.168.1.2 DESCRIBE topic:foo
        no alice 192.168.1.1 ALTER topic:foo
        no alice 192.168.1.2 ALTER topic:foo
        yes rob 192.168.1.1 DESCRIBE topic:foo
        yes batman 192.168.1.1 DESCRIBE topic:foo
        yes rob 192.168.1.1 READ topic:foo
        yes batman 192.168.1.1 WRITE topic:foo
        """,
    ),
    Fact(
        "deny takes precedence",
        "allow * * ALL topic:foo\ndeny alice 192.168.2.1 ALL topic:foo",
        "no alice 192.168.2.1 READ topic:foo\nyes alice 192.168.2.2 READ topic:foo",
    ),
    Fact("all may do all", "allow * * ALL topic:foo", "yes random 192.0.4.4 READ topic:foo"),
    Fact(
        "a super user may do all",
        """
        deny * * ALL topic:foo
        deny * * ALL topic:*
        deny * * ALL cluster:*
        deny * * ALL group:*
        deny * * ALL transactional_id:*
        """,
        """
        yes superuser1 192.0.4.4 READ topic:foo
        yes superuser2 192.0.4.4 READ topic:foo
        no superuser3 192.0.4.4 READ topic:foo
        no Group:superuser1 192.0.4.4 READ topic:foo
        yes superuser1 192.0.4.4 READ topic
        yes superuser1 192.0.4.4 READ cluster
        yes superuser1 192.0.4.4 READ group
        yes superuser1 192.0.4.4 READ transactional_id
        """,
    ),
    Fact(
        "ACLs on all resources",
        """
        allow alice 192.168.3.1 READ topic:*
        allow alice 192.168.3.1 WRITE topic:foo
        deny alice 192.168.3.1 WRITE topic:*
        """,
        "yes alice 192.168.3.1 READ topic:foo\nno alice 192.168.3.1 WRITE topic:foo",
    ),
    _implied("allow", "ALL", ""),
    _implied("deny", "ALL", ""),
    _implied("allow", "READ", "DESCRIBE"),
    _implied("allow", "WRITE", "DESCRIBE"),
    _implied("allow", "DELETE", "DESCRIBE"),
    _implied("allow", "ALTER", "DESCRIBE"),
    _implied("deny", "DESCRIBE", ""),
    _implied("deny", "READ", ""),
    _implied("allow", "ALTER_CONFIGS", "DESCRIBE_CONFIGS"),
    _implied("deny", "DESCRIBE_CONFIGS", ""),
    _implied("deny", "ALTER_CONFIGS", ""),
    _implied("allow", "CREATE", ""),
    Fact("a prefix", "allow alice * READ topic~:foo", "yes alice 192.168.0.1 READ topic:foo-1"),
    Fact(
        "a prefix among others",
        """
        deny alice * READ topic:a_other
        deny alice * READ topic~:a_other
        deny alice * READ topic~:foo-2
        deny alice * READ topic~:foo-1-zzz
        deny alice * READ topic~:fooo-1
        deny alice * READ topic~:fo-1
        deny alice * READ topic~:fop-1
        deny alice * READ topic~:fon-1
        deny alice * READ topic~:fon-
        deny alice * READ topic~:z_other
        deny alice * READ topic:z_other
        allow alice * READ topic~:foo
        """,
        "yes alice 192.168.0.1 READ topic:foo-1\nno alice 192.168.0.1 READ topic:foo-1-zzzz",
    ),
    Fact(
        "names of one character",
        "allow alice * READ topic:f\nallow alice * READ topic~:_",
        """
        yes alice 1.1.1.1 READ topic:f
        no alice 1.1.1.1 READ topic:foo
        yes alice 1.1.1.1 READ topic:_foo
        yes alice 1.1.1.1 READ topic:_
        no alice 1.1.1.1 READ topic:foo_
        """,
    ),
    Fact(
        "an asterisk as a prefix is one",
        "allow alice * READ topic~:*",
        "no alice 1.1.1.1 READ topic:foo\nyes alice 1.1.1.1 READ topic:*foo",
    ),
    Fact(
        "deny of all operations",
        """
        deny alice * ALL topic:foo
        allow alice * READ topic~:foo
        deny * * ALL topic:foo
        allow * * DESCRIBE topic~:foo
        """,
        """
        no alice 1.1.1.1 WRITE topic:foo
        no alice 1.1.1.1 READ topic:foo
        no alice 1.1.1.1 DESCRIBE topic:foo
        yes alice 1.1.1.1 READ topic:foobar
        no bob 1.1.1.1 DESCRIBE topic:foo
        no bob 1.1.1.1 READ topic:foo
        no bob 1.1.1.1 WRITE topic:foo
        yes bob 1.1.1.1 DESCRIBE topic:foobaz
        no bob 1.1.1.1 READ topic:foobaz
        """,
    ),
    Fact(
        "allow of all operations",
        """
        allow * * ALL topic:foo
        allow alice * ALL topic~:bar
        allow bob * ALL topic:baz
        """,
        """
        yes alice 1.1.1.1 WRITE topic:foo
        yes alice 1.1.1.1 DESCRIBE_CONFIGS topic:bar
        no alice 1.1.1.1 DESCRIBE topic:baz
        yes bob 1.1.1.1 WRITE topic:foo
        no bob 1.1.1.1 READ topic:bar
        yes bob 1.1.1.1 DESCRIBE topic:baz
        yes malory 1.1.1.1 DESCRIBE topic:foo
        no malory 1.1.1.1 WRITE topic:bar
        no malory 1.1.1.1 READ topic:baz
        """,
    ),
    Fact(
        "hosts",
        """
        deny alice 192.168.1.1 READ topic:foo
        allow alice * READ topic:foo
        allow bob 192.168.1.2 READ topic:bar
        allow * 127.0.0.1 DESCRIBE topic:bar
        """,
        """
        yes alice 127.0.0.1 READ topic:foo
        no alice 127.0.0.1 READ topic:bar
        yes alice 127.0.0.1 DESCRIBE topic:bar
        no alice 192.168.1.1 READ topic:foo
        no alice 192.168.1.1 DESCRIBE topic:bar
        yes alice 192.168.1.2 READ topic:foo
        no alice 192.168.1.2 READ topic:bar
        no bob 127.0.0.1 READ topic:bar
        yes bob 127.0.0.1 DESCRIBE topic:bar
        no bob 192.168.1.1 READ topic:bar
        yes bob 192.168.1.2 READ topic:bar
        yes bob 192.168.1.2 DESCRIBE topic:bar
        """,
    ),
    Fact(
        "addresses of IPv6, and networks",
        """
        allow alice 0:0:0:0:0:0:0:1 READ topic:foo
        allow bob 192.168.0.0/24 READ topic:foo
        allow carol 2001:db8::/32 READ topic:foo
        deny carol 2001:db8:1::/48 READ topic:foo
        """,
        """
        yes alice ::1 READ topic:foo
        no alice ::2 READ topic:foo
        yes bob 192.168.0.77 READ topic:foo
        yes bob ::ffff:192.168.0.77 READ topic:foo
        no bob 192.168.1.77 READ topic:foo
        no bob ::1 READ topic:foo
        yes carol 2001:db8::7 READ topic:foo
        no carol 2001:db8:1::7 READ topic:foo
        no carol 2001:db9::7 READ topic:foo
        """,
    ),
    Fact(
        "many ACLs",
        """
        allow * * READ topic:green2
        allow bob * READ topic~:green
        allow bob * READ topic:betamax4
        allow bob * READ topic:betamax
        allow * * READ topic~:beta
        allow * * READ topic~:alpha
        deny bob * READ topic~:alp
        allow bob * WRITE group:*
        deny * * WRITE group:wheel
        """,
        """
        yes bob 1.1.1.1 READ topic:green1
        no bob 1.1.1.1 WRITE group:wheel
        no bob 1.1.1.1 READ topic:alpha
        yes bob 1.1.1.1 WRITE group:arbitrary
        no bob 1.1.1.1 READ topic:ala
        """,
    ),
    Fact(
        "any topic: one that is allowed",
        "allow user1 192.168.1.1 READ topic:sb1",
        """
        yes user1 192.168.1.1 READ topic
        no user1 192.168.1.1 READ group
        no user2 192.168.1.1 READ topic
        """,
    ),
    Fact(
        "any topic: one that is denied too",
        "allow user1 192.168.1.1 READ topic:sb1\ndeny user1 192.168.1.1 READ topic:sb1",
        "no user1 192.168.1.1 READ topic",
    ),
    Fact(
        "any topic: a deny for others counts not",
        """
        deny user1 192.168.1.1 READ topic:sb1
        deny user2 192.168.1.1 READ topic:sb1
        deny user1 192.168.1.2 WRITE topic:sb1
        deny user2 192.168.1.2 READ topic:sb1
        allow user1 192.168.1.2 READ topic:sb1
        deny user1 192.168.1.2 READ topic:sb2
        deny user1 192.168.1.2 READ group~:s
        """,
        """
        no user1 192.168.1.1 READ topic
        no user1 192.168.1.1 READ group
        no user1 192.168.1.1 READ transactional_id
        no user1 192.168.1.1 READ cluster
        yes user1 192.168.1.2 READ topic
        """,
    ),
    Fact(
        "any group: a prefix that is allowed",
        "allow user1 * READ group~:abcde",
        "yes user1 192.168.1.1 READ group",
    ),
    Fact(
        "any group: a shorter prefix is denied",
        "allow user1 * READ group~:abcde\ndeny user1 * READ group~:abcd",
        "no user1 192.168.1.1 READ group",
    ),
    Fact(
        "any group: a still shorter one is allowed",
        "allow user1 * READ group~:abcde\ndeny user1 * READ group~:abcd\n"
        "allow user1 * READ group~:abc",
        "yes user1 192.168.1.1 READ group",
    ),
    Fact(
        "any group: the shortest one is denied",
        "allow user1 * READ group~:abcde\ndeny user1 * READ group~:abcd\n"
        "allow user1 * READ group~:abc\ndeny user1 * READ group~:a\nallow user1 * READ group~:ab",
        "no user1 192.168.1.1 READ group",
    ),
    Fact(
        "any group: a literal deny does not cover a prefix",
        "allow user1 * READ group~:ab\ndeny user1 * READ group:ab",
        "yes user1 192.168.1.1 READ group",
    ),
    Fact(
        "any group: all are denied",
        "allow user1 * WRITE group~:hello\ndeny user1 * WRITE group:*\n"
        "allow user1 * WRITE group:*\nallow user1 * WRITE group:aloha",
        "no user1 192.168.1.1 WRITE group",
    ),
    Fact(
        "any group: all are allowed but some",
        "allow user1 * WRITE group:*\ndeny user1 * WRITE group~:h",
        "yes user1 192.168.1.1 WRITE group",
    ),
    Fact(
        "any topic: all operations are allowed but one",
        "deny user1 192.168.1.1 WRITE topic:sb1\nallow user1 192.168.1.1 ALL topic:sb1",
        "yes user1 192.168.1.1 READ topic\nno user1 192.168.1.1 WRITE topic",
    ),
    Fact(
        "any topic: all operations are denied",
        "deny user1 192.168.1.1 ALL topic:sb1\nallow user1 192.168.1.1 ALL topic:sb1",
        "no user1 192.168.1.1 READ topic",
    ),
    Fact(
        "any topic: denied at all hosts",
        """
        allow user1 192.168.1.1 READ topic:sb1
        deny user1 * READ topic:sb1
        deny user1 192.168.1.1 READ topic:sb2
        """,
        "no user1 192.168.1.1 READ topic\nno user1 192.168.1.2 READ topic",
    ),
    Fact(
        "any topic: allowed at all hosts",
        """
        deny user1 * READ topic:sb1
        deny user1 192.168.1.1 READ topic:sb2
        allow user1 * READ topic:sb2
        """,
        "no user1 192.168.1.1 READ topic\nyes user1 192.168.1.2 READ topic",
    ),
    Fact(
        "any topic: denied to all users",
        """
        allow user1 192.168.1.1 READ topic:sb1
        deny * 192.168.1.1 READ topic:sb1
        deny user1 192.168.1.1 READ topic:sb2
        """,
        "no user1 192.168.1.1 READ topic\nno user2 192.168.1.1 READ topic",
    ),
    Fact(
        "any topic: allowed to all users",
        "deny user1 192.168.1.1 READ topic:sb2\nallow * 192.168.1.1 READ topic:sb2",
        "no user1 192.168.1.1 READ topic\nyes user2 192.168.1.1 READ topic",
    ),
    Fact(
        "any topic: an operation that implies it counts for the name that is tried first only",
        "allow a * READ topic:sb1\nallow b * READ topic~:hard",
        "no a 1.1.1.1 DESCRIBE topic\nyes b 1.1.1.1 DESCRIBE topic",
    ),
]
