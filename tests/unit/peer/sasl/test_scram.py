"""SCRAM by the RFCs' examples, and against brokers that cheat."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.secret import Secret
from oncelog.peer.sasl.exchange import SaslAuthenticationError
from oncelog.peer.sasl.scram import ScramExchange

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = NONCE + "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = "W22ZaJ0SNY7soEsUEjb6gQ=="
SERVER_FIRST = f"r={SERVER_NONCE},s={SALT},i=4096".encode()
PROOF = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
SIGNATURE = "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def exchange(nonce: str = NONCE, mechanism: str = "SCRAM-SHA-256") -> ScramExchange:
    return ScramExchange(mechanism, "user", Secret("pencil"), nonce)


def test_the_example_of_rfc_7677_is_followed_to_the_letter() -> None:
    scram = exchange()
    assert scram.first() == f"n,,n=user,r={NONCE}".encode()
    assert scram.answer(SERVER_FIRST) == f"c=biws,r={SERVER_NONCE},p={PROOF}".encode()
    assert not scram.is_complete
    assert scram.answer(f"v={SIGNATURE}".encode()) is None
    assert scram.is_complete


def test_sha_512_gives_proofs_of_64_bytes() -> None:
    scram = exchange(mechanism="SCRAM-SHA-512")
    scram.first()
    answer = scram.answer(SERVER_FIRST)
    assert answer is not None
    assert len(base64.b64decode(answer.rpartition(b",p=")[2])) == 64


def test_separators_in_a_user_name_are_escaped() -> None:
    scram = ScramExchange("SCRAM-SHA-256", "a,b=c", Secret("x"), "n")
    assert scram.first() == b"n,,n=a=2Cb=3Dc,r=n"


@pytest.mark.parametrize(
    ("server_first", "what"),
    [
        (f"r={SERVER_NONCE},s={SALT},i=4095", "4095 iterations"),
        (f"r={SERVER_NONCE},s={SALT},i=1000001", "1000001 iterations"),
        (f"r={SERVER_NONCE},s={SALT},i=99999999999", "no number"),
        (f"r={SERVER_NONCE},s={SALT},i=-1", "no number"),
        (f"r={SERVER_NONCE},s={SALT},i=", "no number"),
        (f"r={NONCE},s={SALT},i=4096", "nonce"),
        (f"r=other,s={SALT},i=4096", "nonce"),
        (f"r={SERVER_NONCE},s=,i=4096", "no salt"),
        (f"r={SERVER_NONCE},s=*,i=4096", "no base64"),
        (f"m=x,r={SERVER_NONCE},s={SALT},i=4096", "malformed"),
        ("", "malformed"),
        ("\xff\xfe", "malformed"),
        ("e=unknown-user", "refuses: unknown-user"),
    ],
)
def test_a_hostile_first_message_is_refused(server_first: str, what: str) -> None:
    scram = exchange()
    scram.first()
    with pytest.raises(SaslAuthenticationError, match=what):
        scram.answer(server_first.encode())


@pytest.mark.parametrize(
    ("server_final", "what"),
    [
        (f"v={base64.b64encode(bytes(32)).decode()}", "signature is wrong"),
        ("v=", "signature is wrong"),
        ("", "did not prove"),
        ("e=invalid-proof", "refuses: invalid-proof"),
    ],
)
def test_a_broker_that_does_not_know_the_password_is_refused(server_final: str, what: str) -> None:
    scram = exchange()
    scram.first()
    scram.answer(SERVER_FIRST)
    with pytest.raises(SaslAuthenticationError, match=what):
        scram.answer(server_final.encode())
    assert not scram.is_complete


def test_bytes_that_are_no_text_are_refused() -> None:
    scram = exchange()
    scram.first()
    with pytest.raises(SaslAuthenticationError, match="UTF-8"):
        scram.answer(b"\xff\xfe")


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=3))
def test_whatever_a_broker_says_it_is_refused_or_goes_on(messages: list[bytes]) -> None:
    scram = exchange()
    scram.first()
    for message in [SERVER_FIRST, *messages]:
        try:
            scram.answer(message)
        except SaslAuthenticationError:
            break
    assert not scram.is_complete


@given(st.text(alphabet="rsimve=,0123456789AZ+/" + NONCE, max_size=80))
def test_no_text_that_looks_like_scram_breaks_it(text: str) -> None:
    scram = exchange()
    scram.first()
    with pytest.raises(SaslAuthenticationError):
        scram.answer(text.encode())
