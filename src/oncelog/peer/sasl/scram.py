"""SCRAM: both sides prove that they know the password, and neither sends it (RFC 5802, RFC 7677).

The broker signs the exchange to prove that it knows the password; with a wrong signature the
exchange fails. The iteration count that a hostile broker may request is bounded from below (a weak
one would let it guess the password from our proof) and from above (a huge one would keep us busy).

Pure but for the derivation's cost.
"""

import base64
import binascii
import hmac

from oncelog.core.sasl import digest, escaped, keys_of, salted_password, xor
from oncelog.core.secret import Secret
from oncelog.core.security_limits import SCRAM_ITERATIONS_MAX, SCRAM_ITERATIONS_MIN
from oncelog.peer.sasl.exchange import SaslAuthenticationError

__all__ = ["ScramExchange"]

_GS2_HEADER = "n,,"
"""No channel binding and no authorization identity: Kafka supports neither."""


class ScramExchange:
    """One exchange. `nonce` is fresh for each, printable and without a comma."""

    def __init__(self, mechanism: str, username: str, password: Secret, nonce: str) -> None:
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce
        self._first_bare = f"n={escaped(username)},r={nonce}"
        self._signature: bytes | None = None
        self.is_complete = False

    def first(self) -> bytes:
        """The name and our nonce."""
        return (_GS2_HEADER + self._first_bare).encode()

    def answer(self, challenge: bytes) -> bytes | None:
        """Our proof to the broker's first message; nothing to its last, which is checked."""
        try:
            text = challenge.decode()
        except UnicodeDecodeError:
            raise SaslAuthenticationError("the broker's SCRAM message is no UTF-8") from None
        if self._signature is None:
            return self._prove(text)
        self._check_signature(text)
        return None

    def _prove(self, server_first: str) -> bytes:
        nonce, salt, iterations = _parse_first(server_first)
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise SaslAuthenticationError(
                "the broker's nonce does not extend ours: a replayed answer"
            )
        if not SCRAM_ITERATIONS_MIN <= iterations <= SCRAM_ITERATIONS_MAX:
            raise SaslAuthenticationError(
                f"the broker asks for {iterations} iterations; from {SCRAM_ITERATIONS_MIN} to"
                f" {SCRAM_ITERATIONS_MAX} are accepted"
            )
        binding = base64.b64encode(_GS2_HEADER.encode()).decode()
        without_proof = f"c={binding},r={nonce}"
        signed = f"{self._first_bare},{server_first},{without_proof}".encode()
        password = self._password.value
        keys = keys_of(
            self._mechanism, salted_password(self._mechanism, password, salt, iterations)
        )
        proof = xor(keys.client_key, digest(self._mechanism, keys.stored_key, signed))
        self._signature = digest(self._mechanism, keys.server_key, signed)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def _check_signature(self, server_final: str) -> None:
        fields = server_final.split(",")
        if fields[0].startswith("e="):
            raise SaslAuthenticationError(f"the broker refuses: {fields[0][2:102]}")
        if not fields[0].startswith("v="):
            raise SaslAuthenticationError("the broker did not prove that it knows the password")
        if not hmac.compare_digest(_decode(fields[0][2:]), self._signature or b""):
            raise SaslAuthenticationError(
                "the broker's signature is wrong: it does not know the password, and may be another"
                " than it says"
            )
        self.is_complete = True


def _parse_first(text: str) -> tuple[str, bytes, int]:
    """Return (nonce, salt, iterations) of the broker's first message; ignore extensions."""
    fields = text.split(",")
    if fields[0].startswith("e="):
        raise SaslAuthenticationError(f"the broker refuses: {fields[0][2:102]}")
    if [field[:2] for field in fields[:3]] != ["r=", "s=", "i="]:
        # A mandatory extension (m=) would come first; none is supported.
        raise SaslAuthenticationError("the broker's first SCRAM message is malformed")
    nonce, salt, iterations = (field[2:] for field in fields[:3])
    if not iterations.isascii() or not iterations.isdigit() or len(iterations) > 10:
        raise SaslAuthenticationError("the broker's iteration count is no number")
    decoded = _decode(salt)
    if not decoded:
        raise SaslAuthenticationError("the broker gives no salt")
    return nonce, decoded, int(iterations)


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise SaslAuthenticationError("the broker's SCRAM message holds no base64") from None
