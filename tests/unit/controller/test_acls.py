"""What becomes of requests to set and to delete ACLs: Apache's AclControlManagerTest."""

from __future__ import annotations

import json
from typing import Any, TypeVar

import pytest

from oncelog.controller.acl_layout import acl_id, acl_path, decode_acl, encode_acl
from oncelog.controller.acls import create_acls, delete_acls
from oncelog.controller.contents import Contents, DamagedMetadata
from oncelog.controller.decision import ControllerDecision, ControllerEvent, DecisionContext
from oncelog.controller.decisions import decide, refused
from oncelog.controller.event_codec import encode_reply
from oncelog.controller.events import AclDeletion, AclOutcome, CreateAcls, DeleteAcls
from oncelog.controller.image import MetadataImage
from oncelog.core import security_limits
from oncelog.core.acl import (
    ANY_ACL,
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from oncelog.core.cluster_limits import CONTROLLER_EVENT_BYTES_MAX
from oncelog.core.config import BrokerConfig
from oncelog.core.errors import ErrorCode

ReplyT = TypeVar("ReplyT")

CONTEXT = DecisionContext(BrokerConfig())
NONE, INVALID = ErrorCode.none, ErrorCode.invalid_request


def acl(name: str, operation: str = "READ", permission: str = "ALLOW", user: str = "alice") -> Acl:
    return Acl(
        ResourceType.TOPIC,
        name,
        PatternType.LITERAL,
        f"User:{user}",
        "*",
        AclOperation[operation],
        AclPermission[permission],
    )


def of_topic(name: str) -> AclFilter:
    return AclFilter(ResourceType.TOPIC, name, PatternType.LITERAL)


class AclCluster:
    """The metadata, and the requests about ACLs that it is changed by."""

    def __init__(self, *acls: Acl) -> None:
        self.contents = Contents(MetadataImage(cluster_id="c"))
        self.create(*acls)

    def ask(self, event: ControllerEvent[ReplyT]) -> ControllerDecision[ReplyT]:
        decision = decide(self.contents.image, event, CONTEXT)
        revision = self.contents.image.revision + 1
        self.contents.take([(*write, revision) for write in decision.writes], revision)
        return decision

    def create(self, *acls: Acl) -> ControllerDecision[tuple[AclOutcome, ...]]:
        return self.ask(CreateAcls(acls))

    def delete(self, *filters: AclFilter) -> ControllerDecision[tuple[AclDeletion, ...]]:
        return self.ask(DeleteAcls(filters))

    @property
    def acls(self) -> set[Acl]:
        return set(self.contents.image.acls.values())


def test_acls_are_set_and_deleted() -> None:
    cluster = AclCluster()
    assert cluster.create(acl("a"), acl("a", "WRITE"), acl("b")).reply == (AclOutcome(),) * 3
    assert cluster.acls == {acl("a"), acl("a", "WRITE"), acl("b")}
    deletions = cluster.delete(of_topic("a"), of_topic("c")).reply
    assert deletions == (AclDeletion(acls=(acl("a"), acl("a", "WRITE"))), AclDeletion())
    assert cluster.acls == {acl("b")}
    assert cluster.delete(ANY_ACL).reply == (AclDeletion(acls=(acl("b"),)),)
    assert cluster.acls == set()


def test_an_acl_that_is_there_is_set_again_without_a_write() -> None:
    cluster = AclCluster(acl("a"))
    before = cluster.contents.image.acls
    decision = cluster.create(acl("a"))
    assert decision == ControllerDecision((AclOutcome(),))
    assert cluster.contents.image.acls is before
    assert len(cluster.create(acl("b"), acl("b")).writes) == 1


def test_an_acl_that_cannot_be_set_leaves_the_others() -> None:
    cluster = AclCluster()
    bad = acl("a")._replace(operation=AclOperation.ANY)
    assert cluster.create(bad, acl("b")).reply == (
        AclOutcome(INVALID, "Invalid operation ANY"),
        AclOutcome(),
    )
    assert cluster.acls == {acl("b")}


def test_a_filter_that_selects_nothing_known_leaves_the_others() -> None:
    cluster = AclCluster(acl("a"))
    deletions = cluster.delete(
        AclFilter(ResourceType.UNKNOWN), AclFilter(operation=AclOperation.UNKNOWN), of_topic("a")
    ).reply
    assert deletions == (
        AclDeletion(INVALID, "Unknown patternFilter."),
        AclDeletion(INVALID, "Unknown entryFilter."),
        AclDeletion(acls=(acl("a"),)),
    )


def test_several_filters_select_of_the_acls_before_the_request() -> None:
    cluster = AclCluster(acl("a"), acl("b"))
    decision = cluster.delete(AclFilter(*acl("a")), of_topic("a"), ANY_ACL)
    assert [len(deletion.acls) for deletion in decision.reply] == [1, 1, 2]
    assert len(decision.writes) == 2
    assert cluster.acls == set()


def test_a_filter_of_one_acl_selects_just_that() -> None:
    cluster = AclCluster(acl("a"), acl("a", user="bob"))
    assert cluster.delete(AclFilter(*acl("a", "WRITE"))).reply == (AclDeletion(),)
    assert cluster.delete(AclFilter(*acl("a"))).reply == (AclDeletion(acls=(acl("a"),)),)
    assert cluster.acls == {acl("a", user="bob")}


def test_what_denies_is_written_first_and_deleted_last() -> None:
    cluster = AclCluster()
    decision = cluster.create(acl("a"), acl("b", permission="DENY"))
    assert [write.path for write in decision.writes] == [
        acl_path(acl_id(acl("b", permission="DENY"))),
        acl_path(acl_id(acl("a"))),
    ]
    deleted = cluster.delete(ANY_ACL).writes
    assert [write.path for write in deleted] == [write.path for write in decision.writes][::-1]


def test_the_log_names_a_few_acls_of_a_change() -> None:
    cluster = AclCluster()
    notices = cluster.create(*(acl(f"t{number:02}") for number in range(12))).notices
    assert len(notices) == 11
    assert notices[0].text == "added an ACL: User:alice may READ topic t00"
    assert notices[-1].text == "added 2 more ACLs"
    (notice,) = cluster.delete(of_topic("t07")).notices
    assert notice.text == "removed an ACL: User:alice may READ topic t07"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"permission": AclPermission.DENY}, "User:alice may not READ topic a"),
        ({"name": "*"}, "User:alice may READ all topics"),
        ({"pattern_type": PatternType.PREFIXED}, "User:alice may READ topics a*"),
        ({"host": "10.0.0.1"}, "User:alice at 10.0.0.1 may READ topic a"),
        ({"resource_type": ResourceType.CLUSTER}, "User:alice may READ the cluster"),
        ({"resource_type": ResourceType.USER}, "User:alice may READ user a"),
    ],
)
def test_an_acl_is_a_sentence(changes: dict[str, Any], sentence: str) -> None:
    assert acl("a")._replace(**changes).sentence == sentence


# --- limits


def test_the_count_of_acls_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncelog.controller.acls.ACLS_COUNT_MAX", 2)
    cluster = AclCluster(acl("a"))
    outcomes = cluster.create(acl("b"), acl("c"), acl("a")).reply
    assert [outcome.error for outcome in outcomes] == [NONE, ErrorCode.policy_violation, NONE]
    assert cluster.acls == {acl("a"), acl("b")}


def test_the_comparisons_of_one_request_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncelog.controller.acls.ACL_COMPARISONS_COUNT_MAX", 4)
    cluster = AclCluster(acl("a"), acl("b"))
    exact = AclFilter(*acl("c"))
    deletions = cluster.delete(exact, exact, exact, of_topic("a"), of_topic("a"), ANY_ACL).reply
    assert [deletion.error for deletion in deletions] == [NONE] * 5 + [INVALID]
    assert cluster.acls == {acl("b")}


def test_what_one_request_deletes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "\N{GRINNING FACE}" * 100
    acls = [acl(f"{number}{name}") for number in range(9)]
    limit = sum(len(one.name) + len(one.principal) + len(one.host) for one in acls[:5])
    monkeypatch.setattr("oncelog.controller.acls.ACLS_DELETED_LENGTH_MAX", limit)
    cluster = AclCluster(*acls)
    (deletion,) = cluster.delete(ANY_ACL).reply
    assert deletion == AclDeletion(INVALID, "Too many ACLs would be deleted by one request.")
    assert len(cluster.acls) == 9
    event = DeleteAcls(tuple(AclFilter(*one) for one in acls))
    reply = cluster.delete(*event.filters).reply
    assert [len(deletion.acls) for deletion in reply] == [1] * 5 + [0] * 4
    # A reply with the most and longest ones is an event's (12 bytes a character, as JSON).
    bytes_count = len(encode_reply(event, reply[:5])) - 5 * 300
    share = CONTROLLER_EVENT_BYTES_MAX - security_limits.ACLS_COUNT_MAX * 300
    assert bytes_count / limit * security_limits.ACLS_DELETED_LENGTH_MAX < share


# --- the store


def test_an_acl_comes_back_as_it_was_stored() -> None:
    stored = acl("ä*/ ", user="CN=x,O=y")
    path = acl_path(acl_id(stored))
    assert decode_acl(path, encode_acl(stored)) == stored
    assert "/" not in acl_id(stored)


OTHER = {**json.loads(encode_acl(acl("a"))), "operation": "FLY"}


@pytest.mark.parametrize(
    "value", [b"", b"[]", b"{}", encode_acl(acl("b")), json.dumps(OTHER).encode()]
)
def test_a_damaged_acl_is_told(value: bytes) -> None:
    contents = Contents(MetadataImage(cluster_id="c"))
    with pytest.raises(DamagedMetadata, match=r"oncelog/acls/.* is damaged"):
        contents.take([(acl_path(acl_id(acl("a"))), value, 1)], 1)


def test_what_was_not_written_is_refused_and_what_was_refused_stays_so() -> None:
    image = MetadataImage(cluster_id="c")
    bad = acl("a")._replace(name="")
    outcomes = create_acls(image, CreateAcls((acl("a"), bad)), CONTEXT).reply
    deletions = delete_acls(
        image, DeleteAcls((ANY_ACL, AclFilter(ResourceType.UNKNOWN))), CONTEXT
    ).reply
    for reply in (outcomes, deletions):
        after = refused(reply, ErrorCode.request_timed_out, "away")
        assert [one.error for one in after] == [ErrorCode.request_timed_out, INVALID]
