"""The broker's side of SCRAM: by the RFC's example, against our client, and bad messages."""

import base64
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.sasl import (
    HASHES,
    ScramCredential,
    credential_of,
    escaped,
    salted_password,
    unescaped,
)
from oncelog.core.secret import Secret
from oncelog.peer.sasl.scram import ScramExchange
from oncelog.security.mechanism import Accepted, Challenge, SaslRefusal
from oncelog.security.scram import ScramMechanism, decoy

SHA256 = "SCRAM-SHA-256"
NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
FIRST = f"n,,n=user,r={NONCE}".encode()
BEFORE_PROOF = f"c=biws,r={NONCE}{SERVER_NONCE}"
PROOF = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
SIGNATURE = "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def stored(
    password: str = "pencil", mechanism: str = SHA256, salt: bytes = SALT
) -> ScramCredential:
    return credential_of(mechanism, salted_password(mechanism, password, salt, 4096), salt, 4096)


USERS = {"user": stored()}


def server(
    find: Callable[[str], ScramCredential | None] = USERS.get,
    mechanism: str = SHA256,
    nonce: str = SERVER_NONCE,
) -> ScramMechanism:
    return ScramMechanism(
        mechanism, find, lambda name: decoy(b"secret", mechanism, name, [stored()]), nonce
    )


def test_the_example_of_rfc_7677_is_followed_to_the_letter() -> None:
    scram = server()
    salt = base64.b64encode(SALT).decode()
    first = f"r={NONCE}{SERVER_NONCE},s={salt},i=4096".encode()
    assert scram.take(FIRST, 0) == Challenge(first)
    accepted = scram.take(f"{BEFORE_PROOF},p={PROOF}".encode(), 0)
    assert accepted == Accepted("user", f"v={SIGNATURE}".encode())


@pytest.mark.parametrize(
    "last",
    [
        f"{BEFORE_PROOF},p={PROOF[:-4]}",
        f"{BEFORE_PROOF},p=",
        f"{BEFORE_PROOF},p=*",
        f"{BEFORE_PROOF},p=é",
        f"{BEFORE_PROOF}",
        f"c=eSws,r={NONCE}{SERVER_NONCE},p={PROOF}",
        f"c=biws,r={NONCE},p={PROOF}",
        f"c=biws,p={PROOF}",
        f"{BEFORE_PROOF},x=another,p={PROOF}",
        f",p={PROOF}",
        "",
        "\x00",
    ],
)
def test_a_last_message_that_proves_nothing_is_refused(last: str) -> None:
    scram = server()
    scram.take(FIRST, 0)
    assert scram.take(last.encode(), 0) == SaslRefusal()


@pytest.mark.parametrize(
    "first",
    [
        "",
        "n,,n=user",
        "n,,n=,r=abc",
        "n,,n=user,r=",
        "n,,n=us=er,r=abc",
        "n,,n=us=2Der,r=abc",
        "n,a=,n=user,r=abc",
        "p=tls-unique,,n=user,r=abc",
        "n,,m=must,n=user,r=abc",
        "n,,n=us\x00er,r=abc",
        "n,,n=user,r=a\x01c",
        "n,,n=user,r=abc,tokenauth=true",
        "x,,n=user,r=abc",
    ],
)
def test_a_first_message_that_is_malformed_is_refused(first: str) -> None:
    assert server().take(first.encode(), 0) == SaslRefusal()


def test_bytes_that_are_no_text_are_refused() -> None:
    assert server().take(b"n,,n=\xff,r=abc", 0) == SaslRefusal()


def test_another_identity_is_refused_whether_the_user_exists_or_not() -> None:
    refusals = {server().take(f"n,a=bob,n={name},r=abc".encode(), 0) for name in ("user", "eve")}
    assert len(refusals) == 1
    assert isinstance(refusals.pop(), SaslRefusal)


def test_an_optional_extension_is_ignored() -> None:
    assert isinstance(server().take(b"n,,n=user,r=abc,x=y", 0), Challenge)


@pytest.mark.parametrize("mechanism", HASHES)
@given(
    name=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1),
    password=st.text(st.characters(exclude_categories=["Cs"])),
)
def test_our_client_and_our_broker_agree(mechanism: str, name: str, password: str) -> None:
    salt = b"a salt of sixteen"
    credential = credential_of(
        mechanism, salted_password(mechanism, password, salt, 4096), salt, 4096
    )
    client = ScramExchange(mechanism, name, Secret(password), "clientnonce")
    scram = server({name: credential}.get, mechanism, "more")
    challenge = scram.take(client.first(), 0)
    assert isinstance(challenge, Challenge)
    proof = client.answer(challenge.data)
    assert proof is not None
    accepted = scram.take(proof, 0)
    assert isinstance(accepted, Accepted)
    assert accepted.name == name
    client.answer(accepted.data)
    assert client.is_complete


def test_an_unknown_user_gets_the_same_salt_each_time_and_is_refused_at_the_end() -> None:
    challenges = {server().take(b"n,,n=mallory,r=abc", 0) for _ in range(3)}
    (challenge,) = challenges
    assert isinstance(challenge, Challenge)
    other = server().take(b"n,,n=trudy,r=abc", 0)
    assert challenge != other
    client = ScramExchange(SHA256, "mallory", Secret("pencil"), "abc")
    client.first()
    scram = server()
    scram.take(client.first(), 0)
    proof = client.answer(challenge.data)
    assert proof is not None
    assert scram.take(proof, 0) == SaslRefusal()


def test_an_unknown_user_is_refused_even_with_the_proof_of_its_decoy() -> None:
    # Its keys are never sent, so no client can have it: the refusal must not rest on that alone.
    real = stored()
    scram = ScramMechanism(SHA256, lambda _: None, lambda _: real, SERVER_NONCE)
    scram.take(FIRST, 0)
    assert scram.take(f"{BEFORE_PROOF},p={PROOF}".encode(), 0) == SaslRefusal()


def test_a_decoy_looks_like_the_stored_credentials() -> None:
    java = ScramCredential(b"1kx0q9z7", b"", b"", 8192)
    ours = ScramCredential(bytes(range(32)), b"", b"", 4096)
    shown = [decoy(b"secret", SHA256, f"user{n}", [java, ours]) for n in range(40)]
    shapes = {(len(one.salt), one.iterations) for one in shown}
    assert shapes == {(8, 8192), (32, 4096)}
    assert all(one.salt.isalnum() for one in shown if len(one.salt) == 8)


def test_a_decoy_stays_the_same_while_other_users_come() -> None:
    before = decoy(b"secret", SHA256, "mallory", [])
    assert before == decoy(b"secret", SHA256, "mallory", [])
    assert before.salt != decoy(b"other", SHA256, "mallory", []).salt
    assert (len(before.salt), before.iterations) == (32, 4096)


@given(st.text(min_size=1))
def test_an_escaped_name_is_read_back(name: str) -> None:
    assert unescaped(escaped(name)) == name


def test_a_credential_shows_no_key() -> None:
    credential = ScramCredential(b"salzig", b"gespeichert", b"serverseitig", 4096)
    assert repr(credential) == "ScramCredential(iterations=4096)"
