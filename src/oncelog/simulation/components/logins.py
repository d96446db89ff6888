"""Simulates who a client is: by an exchange of SCRAM, or by its certificate's name. See `rights`.

The client of SCRAM is written from RFC 5802 alone. It knows a password or not, and may send one
message that is wrong. A rule for the names of certificates is drawn together with a function that
says what becomes of a name.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from oncelog.core.config_definition import ConfigError
from oncelog.core.sasl import ScramCredential
from oncelog.security.mechanism import Accepted, Challenge, SaslRefusal
from oncelog.security.principal_rules import PrincipalRules
from oncelog.security.scram import ScramMechanism, decoy

__all__ = ["exchanges", "logins", "names"]

EXCHANGES_COUNT: Final = 6
RULES_COUNT: Final = 3
NAMES_COUNT: Final = 4
_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_PASSWORDS: Final = {"ann": "secret", "b=o,b": "pass,word=", "ünal": "ключ"}
_ITERATIONS: Final = (1, 2, 7)
_TEXT_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_SECRET: Final = b"of the decoys"
_VALUES: Final = ("Ann", "Service", "a/b", "x-1")
_Fate = Callable[[list[str]], str | None]
_CASES: Final[dict[str, Callable[[str], str]]] = {"": str, "L": str.lower, "U": str.upper}
_PATTERNS: Final[tuple[tuple[str, Callable[[list[str]], list[str] | None]], ...]] = (
    # A pattern, and what its groups are in the parts of a name; None: it does not match.
    ("^CN=(.*?),OU=(.*?),O=(.*?)$", lambda parts: _values(parts) if len(parts) == 3 else None),
    ("CN=([^,]*),OU=([^,]*)", lambda parts: _values(parts) if len(parts) == 2 else None),
    ("CN=([^,]*),.*", lambda parts: _values(parts)[:1]),
    (
        "^CN=(.*?),OU=Service(,O=.*)?$",
        lambda parts: (
            [_values(parts)[0], "".join(f",{part}" for part in parts[2:])]
            if parts[1] == "OU=Service"
            else None
        ),
    ),
    (r"CN=a\/b,(.*)", lambda parts: [",".join(parts[1:])] if parts[0] == "CN=a/b" else None),
    ("cn=(.*)", lambda _: None),
    ("OU=(.*)", lambda _: None),
)
_WRONG_RULES: Final = (
    "default",
    "DEFAULT/L",
    "RULE:a/b",
    "RULE:a/b/L/U",
    "RULE:a/b/x",
    "RULE:(/b/",
)
_REPLACEMENTS: Final[tuple[tuple[str, Callable[[list[str]], str]], ...]] = (
    # A replacement, and what it gives with the whole name and the groups that there are.
    ("$1", lambda groups: groups[1]),
    ("$1@$2", lambda groups: f"{groups[1]}@{groups[2] if len(groups) > 2 else '$2'}"),
    ("$12x", lambda groups: f"{groups[1]}2x"),
    ("all-$0", lambda groups: f"all-{groups[0]}"),
    (r"\$1\/$1", lambda groups: f"$1/{groups[1]}"),
    ("fixed", lambda _: "fixed"),
)


def logins(rng: random.Random) -> Iterator[str]:
    """Simulate some exchanges, and some names of certificates; yield what is wrong."""
    yield from exchanges(rng)
    yield from names(rng)


# --- SCRAM


_Decoy = Callable[[bytes, str, str, Sequence[ScramCredential]], ScramCredential]


def exchanges(
    rng: random.Random, make: type[ScramMechanism] = ScramMechanism, decoy_of: _Decoy = decoy
) -> Iterator[str]:
    """Log in with right and wrong passwords, and with messages that a client may not send."""
    for _ in range(EXCHANGES_COUNT):
        yield from _ScramLogin(rng, make, decoy_of).carry_out()


_WRONG_FIRST: Final[dict[str, Callable[[str, str], str]]] = {
    # What the client says first, by its name as a message has it and its nonce.
    "binds a channel": lambda name, nonce: f"p=tls-unique,,n={name},r={nonce}",
    "another identity": lambda name, nonce: f"n,a=else,n={name},r={nonce}",
    "an empty identity": lambda name, nonce: f"n,a=,n={name},r={nonce}",
    "a mandatory extension": lambda name, nonce: f"n,,m=x,n={name},r={nonce}",
    "no name": lambda _, nonce: f"n,,n=,r={nonce}",
    "a name that is not escaped": lambda name, nonce: f"n,,n={name}=2c,r={nonce}",
    "no nonce": lambda name, _: f"n,,n={name},r=",
    "a nonce of other letters": lambda name, nonce: f"n,,n={name},r={nonce}é",
    "a nonce with a tabulator": lambda name, nonce: f"n,,n={name},r={nonce}\t",
    "a field of another letter": lambda name, nonce: f"n,,u={name},r={nonce}",
    "a nonce of another letter": lambda name, nonce: f"n,,n={name},x={nonce}",
    "an identity of another letter": lambda name, nonce: f"n,n={name},n={name},r={nonce}",
    "too few fields": lambda name, _: f"n,,n={name}",
    "a delegation token": lambda name, nonce: f"n,,n={name},r={nonce},tokenauth=true",
    "a zero in the name": lambda name, nonce: f"n,,n={name}\0,r={nonce}",
}
_WRONG_LAST: Final = (
    "the client's nonce alone",
    "another binding",
    "a proof of another byte",
    "a short proof",
    "a proof that is no base64",
    "no proof",
    "bytes that are no text",
)


class _ScramLogin:
    """One exchange: who logs in, how, and which message is wrong, if any."""

    def __init__(self, rng: random.Random, make: type[ScramMechanism], decoy_of: _Decoy) -> None:
        self._rng = rng
        self._mechanism = rng.choice(sorted(_HASHES))
        self._has_text_salts = rng.random() < 0.5
        self._stored: dict[str, ScramCredential] = {}
        if rng.random() < 0.9:
            self._stored = {name: self._credential(text) for name, text in _PASSWORDS.items()}
        self._decoy_of = decoy_of
        self._name = rng.choice([*_PASSWORDS, "nemo"])
        self._password = _PASSWORDS.get(self._name, "")
        if rng.random() < 0.2:
            self._password = rng.choice(("", "guess"))
        self._wrong_first = rng.choice(sorted(_WRONG_FIRST)) if rng.random() < 0.3 else ""
        self._wrong_last = rng.choice(_WRONG_LAST) if rng.random() < 0.3 else ""
        self._nonce = f"c{rng.randrange(1_000)}"
        self._real = make(self._mechanism, self._stored.get, self._decoy, "server")

    def _credential(self, password: str) -> ScramCredential:
        salt = self._rng.randbytes(8)
        if self._has_text_salts:  # Java's AdminClient makes such ones.
            salt = "".join(self._rng.choices(_TEXT_DIGITS, k=26)).encode()
        iterations = self._rng.choice(_ITERATIONS)
        salted = self._salted(password, salt, iterations)
        stored_key = self._hash(self._hmac(salted, b"Client Key"))
        return ScramCredential(salt, stored_key, self._hmac(salted, b"Server Key"), iterations)

    def _decoy(self, name: str) -> ScramCredential:
        return self._decoy_of(_SECRET, self._mechanism, name, list(self._stored.values()))

    # --- the client's arithmetic

    def _hash(self, data: bytes) -> bytes:
        return hashlib.new(_HASHES[self._mechanism], data).digest()

    def _hmac(self, key: bytes, data: bytes) -> bytes:
        return hmac.new(key, data, _HASHES[self._mechanism]).digest()

    def _salted(self, password: str, salt: bytes, iterations: int) -> bytes:
        """Hi of RFC 5802, step by step."""
        step = self._hmac(password.encode(), salt + b"\x00\x00\x00\x01")
        found = int.from_bytes(step)
        for _ in range(iterations - 1):
            step = self._hmac(password.encode(), step)
            found ^= int.from_bytes(step)
        return found.to_bytes(len(step))

    # --- the exchange

    def carry_out(self) -> Iterator[str]:
        """Yield what is wrong with the replies."""
        what = f"{self._name} with {self._password!r}, {self._wrong_first!r}, {self._wrong_last!r}"
        for text in self._exchange():
            yield f"SCRAM of {what}: {text}"
            return

    def _exchange(self) -> Iterator[str]:
        name = self._name.replace("=", "=3D").replace(",", "=2C")
        header = self._rng.choice(("n,,", "y,,", f"n,a={name},"))
        bare = f"n={name},r={self._nonce}" + self._rng.choice(("", "", ",x=more"))
        if self._wrong_first:
            first = _WRONG_FIRST[self._wrong_first](name, self._nonce)
            reply = self._real.take(first.encode(), 0.0)
            if not isinstance(reply, SaslRefusal):
                yield f"{first!r} is answered {reply}"
            return
        reply = self._real.take((header + bare).encode(), 0.0)
        shown = self._stored.get(self._name)
        if shown is None:
            shown = self._decoy(self._name)
            yield from self._tells(shown)
        salt = base64.b64encode(shown.salt).decode()
        server_first = f"r={self._nonce}server,s={salt},i={shown.iterations}"
        if reply != Challenge(server_first.encode()):
            yield f"the first reply is {reply}, not {server_first!r}"
        if not self._stored:
            return  # So many iterations take too long.
        binding = base64.b64encode(header.encode()).decode()
        yield from self._prove(bare, server_first, f"c={binding},r={self._nonce}server", shown)

    def _tells(self, shown: ScramCredential) -> Iterator[str]:
        """How one can see that a user does not exist."""
        likely = {_look(one) for one in self._stored.values()} or {(32, False, 4096)}
        if _look(shown) not in likely or shown.salt == self._decoy("other").salt:
            yield f"a user who does not exist is shown {shown.salt!r}, {shown.iterations}"

    def _prove(
        self, bare: str, server_first: str, last: str, shown: ScramCredential
    ) -> Iterator[str]:
        if self._wrong_last == "the client's nonce alone":
            last = last.removesuffix("server")
        elif self._wrong_last == "another binding":
            last = last.replace("c=", "c=x", 1)
        salted = self._salted(self._password, shown.salt, shown.iterations)
        key = self._hmac(salted, b"Client Key")
        signed = f"{bare},{server_first},{last}".encode()
        mask = self._hmac(self._hash(key), signed)
        proof = bytes(one ^ other for one, other in zip(key, mask, strict=True))
        reply = self._real.take(self._last_message(last, proof), 0.0)
        if self._wrong_last or self._password != _PASSWORDS.get(self._name):
            if not isinstance(reply, SaslRefusal):
                yield f"it is let in: {reply}"
            return
        signature = base64.b64encode(self._hmac(self._hmac(salted, b"Server Key"), signed))
        if reply != Accepted(self._name, b"v=" + signature):
            yield f"the last reply is {reply}, not {signature!r}"

    def _last_message(self, last: str, proof: bytes) -> bytes:
        if self._wrong_last == "a proof of another byte":
            place = self._rng.randrange(len(proof))
            proof = proof[:place] + bytes([proof[place] ^ 1]) + proof[place + 1 :]
        elif self._wrong_last == "a short proof":
            proof = proof[:-1]
        encoded = base64.b64encode(proof).decode()
        if self._wrong_last == "a proof that is no base64":
            encoded = "*" + encoded
        if self._wrong_last == "no proof":
            return last.encode()
        if self._wrong_last == "bytes that are no text":
            return b"\xff"
        return f"{last},p={encoded}".encode()


def _look(credential: ScramCredential) -> tuple[int, bool, int]:
    """What a client sees of a credential before it has proved anything."""
    is_text = all(byte in _TEXT_DIGITS.encode() for byte in credential.salt)
    return len(credential.salt), is_text, credential.iterations


# --- names of certificates


def names(rng: random.Random, make: type[PrincipalRules] = PrincipalRules) -> Iterator[str]:
    """Draw rules with what they have to make of a name, and ask for some names."""
    wrong = rng.choice(_WRONG_RULES)
    try:
        make(wrong)
        yield f"{wrong!r} is taken for a rule"
    except ConfigError:
        pass
    for _ in range(RULES_COUNT):
        drawn = [_rule(rng) for _ in range(rng.choice((1, 2, 3)))]
        text = rng.choice((",", ", ", " , ")).join(rule for rule, _ in drawn)
        real = make(rng.choice(("", " ")) + text)
        for _ in range(NAMES_COUNT):
            parts = [f"{key}={rng.choice(_VALUES)}" for key in ("CN", "OU", "O")]
            parts = parts[: rng.choice((2, 3, 3))]
            user = next((made for _, fate in drawn if (made := fate(parts)) is not None), None)
            found = real.name_of(",".join(parts))
            if found != user:
                yield f"{text!r} makes {found!r} of {parts}, not {user!r}"


def _rule(rng: random.Random) -> tuple[str, _Fate]:
    """A rule, and what it makes of the parts of a name; None: it does not match."""
    if rng.random() < 0.15:
        return "DEFAULT", ",".join
    letter, change = rng.choice(sorted(_CASES.items()))
    pattern, values_of = rng.choice(_PATTERNS)
    replacement, fill = rng.choice(_REPLACEMENTS)

    def fate(parts: list[str]) -> str | None:
        values = values_of(parts)
        return None if values is None else change(fill([",".join(parts), *values]))

    return f"RULE:{pattern}/{replacement}/{letter}", fate


def _values(parts: list[str]) -> list[str]:
    return [part.partition("=")[2] for part in parts]
