"""Scenarios of one connection that has to authenticate, of the pure state machine alone.

`tests.scenarios.steps` tells how a file is read.

Commands: versions [N | bad-name]; handshake MECHANISM [v0]; plain NAME PASSWORD [IDENTITY];
scram NAME PASSWORD (first message, then the proof); token NAME [SECONDS that it lasts]; bare NAME
PASSWORD (PLAIN without a header); say TEXT (a message of the mechanism); ask API; bytes HEX; wait
MS; listener MECHANISM=MS (sessions have an end).
"""

import base64
import json
from pathlib import Path

import pytest

from oncelog.core.sasl import credential_of, salted_password
from oncelog.core.secret import Secret
from oncelog.peer.sasl.scram import ScramExchange
from oncelog.protocol import codec
from oncelog.protocol.api import ApiKey, newest
from oncelog.protocol.messages.api_versions import ApiVersionsRequest
from oncelog.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from oncelog.protocol.messages.sasl_handshake import SaslHandshakeRequest
from oncelog.security.authentication import Authentication, SaslMoment, SaslOutcome, SaslRules
from oncelog.security.bearer import BearerMechanism
from oncelog.security.plain import PlainMechanism
from oncelog.security.scram import ScramMechanism, decoy
from oncelog.security.tokens import TokenClaims, UnsecuredTokens
from tests.scenarios.steps import compare, read_steps

FILES = sorted(Path(__file__).parent.glob("*.txt"))
USERS = {"alice": "geheim", "bob": "sesam"}
SCRAM = "SCRAM-SHA-256"
SALT = b"a salt of sixteen"
CREDENTIALS = {
    name: credential_of(SCRAM, salted_password(SCRAM, password, SALT, 4096), SALT, 4096)
    for name, password in USERS.items()
}
NOW_MS = 1_700_000_000_000


class Stage:
    """One connection; `took` collects what the machine said to each frame of a command."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.sessions_ms: dict[str, float] = {}
        self.rules = SaslRules(
            {
                "PLAIN": lambda _: PlainMechanism(
                    {name: Secret(password) for name, password in USERS.items()}
                ),
                SCRAM: lambda nonce: ScramMechanism(
                    SCRAM,
                    CREDENTIALS.get,
                    lambda name: decoy(b"secret", SCRAM, name, [*CREDENTIALS.values()]),
                    nonce,
                ),
                "OAUTHBEARER": lambda _: BearerMechanism(
                    UnsecuredTokens(TokenClaims(clock_skew_ms=0))
                ),
            },
            self.sessions_ms,
            failed_delay_ms=100,
            receive_bytes_max=524_288,
        )
        self.machine = Authentication(self.rules)
        self.mechanism = ""

    def frame(self, data: bytes) -> tuple[SaslOutcome, list[str]]:
        moment = SaslMoment(NOW_MS + self.now_ms, self.now_ms, "servernonce")
        outcome = self.machine.take(data, moment)
        return outcome, self.told(data, outcome)

    def told(self, data: bytes, outcome: SaslOutcome) -> list[str]:
        found = []
        if outcome.passes_on:
            found.append("passes on")
        if outcome.reply is not None:
            found.append(self._answer(data, outcome.reply))
        if outcome.principal is not None:
            found.append(f"is {outcome.principal}")
        if outcome.closes:
            after = f" after {outcome.delay_ms:.0f} ms" if outcome.delay_ms else ""
            counted = ", counted" if outcome.is_refusal else ""
            counted = ", killed as expired" if outcome.is_expired else counted
            found.append(f"closes{after}{counted}: {outcome.reason}")
        return found

    def _answer(self, data: bytes, reply: bytes) -> str:
        api = ApiKey(int.from_bytes(data[:2], "big")) if data[2:3] == b"\0" else None
        if api is None:
            return f"answers the bytes {reply!r}"
        version = int.from_bytes(data[2:4], "big")
        number, offset = codec.parse_response_header(api, version, reply)
        assert number == 7, "the answer has the request's correlation id"
        answer = codec.parse_response(api, version, reply, offset)
        text = f"answers {api.title} {answer.error_code.name.upper()}"
        if api is ApiKey.SASL_HANDSHAKE:
            return f"{text}, of {', '.join(answer.mechanisms)}"
        if api is ApiKey.SASL_AUTHENTICATE:
            lifetime = answer.session_lifetime_ms
            said = bytes(answer.auth_bytes).decode()
            ends = f", session of {lifetime} ms" if lifetime else ""
            message = f": {answer.error_message}" if answer.error_message else ""
            return f"{text} {said!r}{ends}{message}"
        return text

    def request(self, api: ApiKey, version: int, request: object) -> list[str]:
        return self.frame(codec.encode_request(api, version, 7, "test", request))[1]

    def say(self, message: bytes, version: int = 2) -> tuple[SaslOutcome, list[str]]:
        request = SaslAuthenticateRequest(auth_bytes=message)
        api = ApiKey.SASL_AUTHENTICATE
        return self.frame(codec.encode_request(api, version, 7, "test", request))

    def scram(self, name: str, password: str) -> list[str]:
        exchange = ScramExchange(SCRAM, name, Secret(password), "clientnonce")
        outcome, told = self.say(exchange.first())
        if outcome.closes or outcome.reply is None:
            return told
        _, offset = codec.parse_response_header(ApiKey.SASL_AUTHENTICATE, 2, outcome.reply)
        answer = codec.parse_response(ApiKey.SASL_AUTHENTICATE, 2, outcome.reply, offset)
        proof = exchange.answer(bytes(answer.auth_bytes))
        assert proof is not None
        return told + self.say(proof)[1]

    def perform(self, command: str) -> list[str]:
        verb, *words = command.split()
        match verb:
            case "versions":
                version = int(words[0]) if words and words[0].isdigit() else 3
                name = "-" if words == ["bad-name"] else "test"
                request = ApiVersionsRequest(
                    client_software_name=name, client_software_version="1.0"
                )
                data = codec.encode_request(ApiKey.API_VERSIONS, min(version, 3), 7, "t", request)
                return self.frame(data[:2] + version.to_bytes(2, "big") + data[4:])[1]
            case "handshake":
                version = 0 if "v0" in words else 1
                shake = SaslHandshakeRequest(mechanism=words[0])
                return self.request(ApiKey.SASL_HANDSHAKE, version, shake)
            case "plain":
                name, password, *identity = words
                return self.say("\0".join([*(identity or [""]), name, password]).encode())[1]
            case "bare":
                return self.frame(f"\0{words[0]}\0{words[1]}".encode())[1]
            case "scram":
                return self.scram(words[0], words[1])
            case "token":
                lasts_s = int(words[1]) if len(words) > 1 else 60
                return self.say(bearer(words[0], (NOW_MS + self.now_ms) / 1000 + lasts_s))[1]
            case "say":
                return self.say(words[0].encode().decode("unicode_escape").encode())[1]
            case "ask":
                api = ApiKey[words[0]]
                data = api.value.to_bytes(2, "big") + newest(api).to_bytes(2, "big")
                return self.frame(data + (7).to_bytes(4, "big") + b"\xff\xff" + bytes(8))[1]
            case "bytes":
                return self.frame(bytes.fromhex(words[0]))[1]
            case "wait":
                self.now_ms += float(words[0])
            case "listener":
                mechanism, _, text = words[0].partition("=")
                self.sessions_ms[mechanism] = float(text)
        return []


def bearer(name: str, expires_s: float) -> bytes:
    parts = ({"alg": "none"}, {"sub": name, "exp": expires_s})
    texts = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode() for part in parts]
    token = ".".join(text.rstrip("=") for text in texts) + "."
    return f"n,,\x01auth=Bearer {token}\x01\x01".encode()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    stage = Stage()
    steps = read_steps(path)
    outputs = [stage.perform(s.command) or ["nothing"] if s.command else [] for s in steps]
    compare(path, outputs)


def test_there_are_scenarios() -> None:
    assert len(FILES) >= 8
