"""What becomes of the quotas of users and clients: Kafka's ClientQuotasRequestTest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.controller.contents import Contents, DamagedMetadata
from oncelog.controller.decision import ControllerDecision, DecisionContext
from oncelog.controller.decisions import decide, refused
from oncelog.controller.events import AlterClientQuotas, QuotaAlteration, QuotaChange, QuotaOutcome
from oncelog.controller.image import MetadataImage
from oncelog.controller.quota_layout import QUOTAS_PREFIX, entity_of, quota_path
from oncelog.core.config import BrokerConfig
from oncelog.core.errors import ErrorCode
from oncelog.core.quotas import DEFAULT, ClientQuotaEntity

NONE, BAD = ErrorCode.none, ErrorCode.invalid_request
USER = ("user", "alice")
RATE = "producer_byte_rate"


def altered(*entity: tuple[str, str | None], **changes: str | float | None) -> QuotaAlteration:
    return QuotaAlteration(
        entity,
        tuple(QuotaChange(k, None if v is None else str(v)) for k, v in changes.items()),
    )


class Cluster:
    """The metadata, and the events that it is changed by."""

    def __init__(self) -> None:
        self.contents = Contents(MetadataImage(cluster_id="c"))

    def ask(
        self, *alterations: QuotaAlteration, validate_only: bool = False
    ) -> ControllerDecision[tuple[QuotaOutcome, ...]]:
        event = AlterClientQuotas(alterations, validate_only)
        decision = decide(self.contents.image, event, DecisionContext(BrokerConfig()))
        revision = self.contents.image.revision + 1
        self.contents.take([(*write, revision) for write in decision.writes], revision)
        return decision

    def errors(self, *alterations: QuotaAlteration) -> list[ErrorCode]:
        return [outcome.error for outcome in self.ask(*alterations).reply]

    @property
    def known(self) -> dict[ClientQuotaEntity, dict[str, float]]:
        return {entity: dict(found) for entity, found in self.contents.image.client_quotas.items()}


def test_quotas_are_set_changed_and_removed() -> None:
    cluster = Cluster()
    both = (USER, ("client-id", None))
    assert cluster.errors(
        altered(USER, producer_byte_rate=10), altered(*both, request_percentage=0.5)
    ) == [NONE, NONE]
    cluster.ask(altered(USER, consumer_byte_rate=20, producer_byte_rate=30))
    assert cluster.known == {
        ClientQuotaEntity("alice"): {"producer_byte_rate": 30.0, "consumer_byte_rate": 20.0},
        ClientQuotaEntity("alice", DEFAULT): {"request_percentage": 0.5},
    }
    cluster.ask(altered(USER, consumer_byte_rate=None), altered(*both, request_percentage=None))
    assert cluster.known == {ClientQuotaEntity("alice"): {"producer_byte_rate": 30.0}}


def test_what_changes_nothing_writes_nothing() -> None:
    cluster = Cluster()
    cluster.ask(altered(USER, producer_byte_rate=10))
    decision = cluster.ask(
        altered(USER, producer_byte_rate=10), altered(("user", "b"), request_percentage=None)
    )
    assert decision == ControllerDecision((QuotaOutcome(), QuotaOutcome()))


def test_a_change_that_is_only_checked_is_not_made() -> None:
    cluster = Cluster()
    decision = cluster.ask(altered(USER, producer_byte_rate=10), validate_only=True)
    assert decision == ControllerDecision((QuotaOutcome(),))


@pytest.mark.parametrize(
    ("alteration", "text"),
    [
        (altered(producer_byte_rate=1), "Invalid empty client quota entity"),
        (altered(USER, USER, producer_byte_rate=1), "duplicate entity entry user"),
        (
            altered(("group", "g"), producer_byte_rate=1),
            "Unhandled client quota entity type",
        ),
        (altered(("user", ""), producer_byte_rate=1), "Empty user not supported"),
        (
            altered(("ip", "127.0.0.1"), USER, producer_byte_rate=1),
            "IP entity should not be combined",
        ),
        (
            altered(("ip", "127.0.0.1"), connection_creation_rate=1),
            "rates of connections, are not supported",
        ),
        (altered(USER, producer_rate=1), "Invalid configuration key producer_rate"),
        (altered(USER, producer_byte_rate=0), "must be greater than 0"),
        (altered(USER, producer_byte_rate=-1), "must be greater than 0"),
        (altered(USER, producer_byte_rate=0.5), "cannot be a fractional value"),
        (altered(USER, producer_byte_rate=1e19), "too large for a LONG"),
        (altered(USER, request_percentage="nan"), "must be a number"),
        (altered(USER, request_percentage="inf"), "must be a number"),
        (altered(USER, request_percentage="x"), "must be a number"),
        (altered(("user", "a" * 1025), request_percentage=1), "at most 1024 characters"),
    ],
)
def test_what_is_wrong_is_refused_alone(alteration: QuotaAlteration, text: str) -> None:
    cluster = Cluster()
    wrong, right = cluster.ask(alteration, altered(("user", "bob"), producer_byte_rate=1)).reply
    assert wrong.error is BAD
    assert text in str(wrong.message)
    assert right == QuotaOutcome()
    assert cluster.known == {ClientQuotaEntity("bob"): {RATE: 1.0}}


def test_an_entity_or_a_key_that_is_named_twice_is_refused() -> None:
    cluster = Cluster()
    twice = QuotaAlteration((USER,), (QuotaChange(RATE, "1"), QuotaChange(RATE, None)))
    assert cluster.errors(twice) == [BAD]
    same = altered(("user", "b"), producer_byte_rate=1)
    assert cluster.errors(same, same) == [BAD, BAD]
    assert cluster.known == {}


def test_there_are_only_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncelog.controller.quotas.CLIENT_QUOTAS_COUNT_MAX", 2)
    cluster = Cluster()
    asked = [altered(("user", name), producer_byte_rate=1) for name in "abc"]
    assert cluster.errors(*asked) == [NONE, NONE, ErrorCode.policy_violation]
    assert cluster.errors(altered(("user", "a"), producer_byte_rate=2)) == [NONE]


def test_what_could_not_be_written_was_not_set() -> None:
    outcomes = (QuotaOutcome(), QuotaOutcome(BAD, "no"))
    told = refused(outcomes, ErrorCode.request_timed_out, "late")
    assert told == (QuotaOutcome(ErrorCode.request_timed_out, "late"), QuotaOutcome(BAD, "no"))


names = st.none() | st.just(DEFAULT) | st.text(min_size=1)


@given(names, names)
def test_a_path_names_its_entity(user: str | None, client_id: str | None) -> None:
    if user is None and client_id is None:
        return
    entity = ClientQuotaEntity(user, client_id)
    path = quota_path(entity)
    assert entity_of(path) == entity
    assert "/" not in path.removeprefix(QUOTAS_PREFIX)


@pytest.mark.parametrize(
    ("path", "value"),
    [("user=a", b"x"), ("user=a", b'{"a":"b"}'), ("a", b"{}"), ("ip=a", b"{}"), ("", b"{}")],
)
def test_damage_is_said(path: str, value: bytes) -> None:
    with pytest.raises(DamagedMetadata):
        Cluster().contents.take([(QUOTAS_PREFIX + path, value, 1)], 1)
