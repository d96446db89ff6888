"""What becomes of the SCRAM credentials of users: Kafka's AlterUserScramCredentialsRequestTest."""

from __future__ import annotations

from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.controller.contents import Contents, DamagedMetadata
from oncelog.controller.decision import ControllerDecision, DecisionContext
from oncelog.controller.decisions import decide, refused
from oncelog.controller.events import (
    AlterScramCredentials,
    ScramDeletion,
    ScramOutcome,
    ScramUpsertion,
)
from oncelog.controller.image import MetadataImage
from oncelog.controller.scram_layout import (
    SCRAM_PREFIX,
    SCRAM_SECRET_PATH,
    decode_scram_credentials,
    encode_scram_credentials,
    scram_path,
    user_of,
)
from oncelog.core.config import BrokerConfig
from oncelog.core.errors import ErrorCode
from oncelog.core.sasl import ScramCredential
from oncelog.core.secret import Secret

SHA256, SHA512 = 1, 2
KEY = Secret(b64encode(b"k" * 32).decode())
SALT = Secret(b64encode(b"salt").decode())
NONE, TWICE = ErrorCode.none, ErrorCode.duplicate_resource
BAD = ErrorCode.unacceptable_credential


def put(user: str, mechanism: int = SHA256, iterations: int = 4096) -> ScramUpsertion:
    return ScramUpsertion(user, mechanism, iterations, SALT, KEY, KEY)


def remove(user: str, mechanism: int = SHA256) -> ScramDeletion:
    return ScramDeletion(user, mechanism)


class Cluster:
    """The metadata, and the events that it is changed by."""

    def __init__(self) -> None:
        self.contents = Contents(MetadataImage(cluster_id="c"))
        self.secret = 0

    def ask(
        self, *changes: ScramDeletion | ScramUpsertion
    ) -> ControllerDecision[tuple[ScramOutcome, ...]]:
        self.secret += 1
        event = AlterScramCredentials(
            tuple(one for one in changes if isinstance(one, ScramDeletion)),
            tuple(one for one in changes if isinstance(one, ScramUpsertion)),
            Secret(f"secret {self.secret}"),
        )
        decision = decide(self.contents.image, event, DecisionContext(BrokerConfig()))
        revision = self.contents.image.revision + 1
        self.contents.take([(*write, revision) for write in decision.writes], revision)
        return decision

    def errors(self, *changes: ScramDeletion | ScramUpsertion) -> dict[str, ErrorCode]:
        return {outcome.user: outcome.error for outcome in self.ask(*changes).reply}

    @property
    def known(self) -> dict[str, dict[str, int]]:
        return {
            user: {mechanism: one.iterations for mechanism, one in found.items()}
            for user, found in self.contents.image.scram_credentials.items()
        }


def test_credentials_are_set_changed_and_deleted() -> None:
    cluster = Cluster()
    assert cluster.errors(put("a"), put("b", SHA512, 8192)) == {"a": NONE, "b": NONE}
    assert cluster.errors(put("a", SHA512), put("b", SHA512, 16384)) == {"a": NONE, "b": NONE}
    both = {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096}
    assert cluster.known == {"a": both, "b": {"SCRAM-SHA-512": 16384}}
    assert cluster.errors(remove("a"), remove("b", SHA512)) == {"a": NONE, "b": NONE}
    assert cluster.known == {"a": {"SCRAM-SHA-512": 4096}}


def test_nothing_asked_changes_nothing() -> None:
    assert Cluster().ask() == ControllerDecision(())


@pytest.mark.parametrize(
    "changes",
    [
        [remove("a"), remove("a"), put("b"), put("b")],
        [remove("a"), remove("b"), put("a"), put("b")],
        [remove("a"), remove("a"), remove("a"), put("b"), put("b", SHA512)],
    ],
)
def test_a_user_may_be_changed_once_in_a_request(
    changes: list[ScramDeletion | ScramUpsertion],
) -> None:
    cluster = Cluster()
    cluster.ask(put("a"), put("b"))
    assert cluster.errors(*changes) == {"a": TWICE, "b": TWICE}
    assert cluster.known.keys() == {"a", "b"}


def test_the_first_error_of_a_user_is_told() -> None:
    cluster = Cluster()
    assert cluster.errors(put("a", iterations=1), put("a")) == {"a": BAD}
    assert cluster.known == {}


def test_the_change_of_one_user_is_made_when_another_s_is_refused() -> None:
    cluster = Cluster()
    errors = cluster.errors(put("a"), put("a"), put("b"), put("c", iterations=1))
    assert errors == {"a": TWICE, "b": NONE, "c": BAD}
    assert cluster.known.keys() == {"b"}


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        (put(""), BAD, "Username must not be empty"),
        (remove(""), BAD, "Username must not be empty"),
        (put("u" * 1025), BAD, "Username is too long"),
        (put("u", iterations=4095), BAD, "Too few iterations"),
        (put("u", iterations=16385), BAD, "Too many iterations"),
        (put("u", 0), ErrorCode.unsupported_sasl_mechanism, "Unknown SCRAM mechanism"),
        (put("u", 3), ErrorCode.unsupported_sasl_mechanism, "Unknown SCRAM mechanism"),
        (remove("u", 0), ErrorCode.unsupported_sasl_mechanism, "Unknown SCRAM mechanism"),
        (
            remove("u"),
            ErrorCode.resource_not_found,
            "Attempt to delete a user credential that does not exist",
        ),
        (put("u")._replace(salt=Secret("")), BAD, "Salt and salted password must not be empty"),
        (put("u")._replace(server_key=Secret("")), BAD, "Salt and salted password"),
        (put("u")._replace(salt=Secret("*")), BAD, "A key is no base64"),
        (put("u")._replace(salt=Secret("A" * 2048)), BAD, "The salt is too long"),
    ],
)
def test_a_change_that_cannot_be_made_is_refused(
    change: ScramDeletion | ScramUpsertion, error: ErrorCode, text: str
) -> None:
    cluster = Cluster()
    cluster.ask(put("u", SHA512))
    decision = cluster.ask(change)
    (outcome,) = decision.reply
    assert (outcome.user, outcome.error) == (change.user, error)
    assert (outcome.message or "").startswith(text)
    assert decision.writes == ()


def test_the_first_secret_stays() -> None:
    cluster = Cluster()
    cluster.ask(put("u", iterations=1))
    assert cluster.contents.image.scram_secret is None
    for user in ("a", "b"):
        cluster.ask(put(user))
    assert cluster.contents.image.scram_secret == Secret("secret 2")


def test_no_line_of_the_log_and_no_text_of_an_event_has_a_key() -> None:
    cluster = Cluster()
    decision = cluster.ask(put("u"))
    shown = f"{put('u')} {decision.notices} {decision.reply} {cluster.contents.image.scram_secret}"
    assert KEY.value not in shown
    assert SALT.value not in shown
    assert [notice.text for notice in decision.notices] == [
        "changed the SCRAM-SHA-256 credential of user 'u'"
    ]


def test_what_was_not_written_is_refused_and_what_was_refused_stays_so() -> None:
    reply = Cluster().ask(put("a"), put("b", iterations=1)).reply
    after = refused(reply, ErrorCode.request_timed_out, "away")
    assert [outcome.error for outcome in after] == [ErrorCode.request_timed_out, BAD]


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_a_user_s_path_holds_any_name_in_one_part(user: str) -> None:
    path = scram_path(user)
    assert user_of(path) == user
    assert "/" not in path.removeprefix(SCRAM_PREFIX)
    assert path.removeprefix(SCRAM_PREFIX) not in (".", "..")


def test_credentials_come_back_as_they_were_stored() -> None:
    found = {"SCRAM-SHA-256": ScramCredential(b"s", b"t", b"v", 4096)}
    assert decode_scram_credentials(encode_scram_credentials(found)) == found


@pytest.mark.parametrize("value", [b"", b"[]", b"{", b'{"SCRAM-SHA-256": {}}', b'{"x": 1}'])
def test_a_damaged_value_is_told_without_its_bytes(value: bytes) -> None:
    contents = Contents(MetadataImage(cluster_id="c"))
    with pytest.raises(DamagedMetadata, match="scram-credentials/u is damaged"):
        contents.take([(scram_path("u"), value, 1)], 1)


def test_a_secret_that_is_gone_from_the_store_is_none() -> None:
    contents = Contents(MetadataImage(cluster_id="c"))
    contents.take([(SCRAM_SECRET_PATH, b"s", 1)], 1)
    contents.take([(SCRAM_SECRET_PATH, None, 0)], 2)
    assert contents.image.scram_secret is None
