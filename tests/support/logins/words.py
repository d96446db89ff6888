"""What each client says at the end of a case: its own error, by class or code.

Both brokers have to lead to these words. Where a client says the same of two ends, or nothing of
the cause, it does so with Apache Kafka too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from tests.support.logins.cases import CASES, End

__all__ = ["SAME_ON_BOTH", "fits", "normal"]

_BAD_TOKEN: Final = r'\{"status":"invalid_token"\}'
_REFUSED: Final = (
    r"Authentication failed: Invalid username or password"
    r"|Authentication failed during authentication due to invalid credentials with SASL mechanism "
    rf"SCRAM-SHA-(256|512)|{_BAD_TOKEN}"
)
_ALERT: Final = "(bad.certificate|certificate.(required|expired|unknown)|unknown.ca)"
_ENDED: Final = "(_ALL_BROKERS_DOWN|_TRANSPORT): .*(Disconnected|reset by peer).*"
_CONFLUENT: Final = {
    End.OK: "ok",
    End.CREDENTIALS: rf"_AUTHENTICATION: .*SASL authentication error: ({_REFUSED}) .*",
    End.MECHANISM: "_AUTHENTICATION: .*Unsupported SASL mechanism: .*: SCRAM-SHA-256 .*",
    End.NO_SASL: "_AUTHENTICATION: .*Request not valid in current SASL state.*",
    End.NO_LOGIN: _ENDED,
    End.CERTIFICATE: f"_TRANSPORT: .*alert {_ALERT}: SSL alert number .*",
    End.BROKER: "_SSL: .*certificate verify failed.*",
    End.NEEDS_TLS: f"{_ENDED} in state APIVERSION_QUERY.*",
    # Mostly it asks: "connecting to a PLAINTEXT broker listener?".
    End.NEEDS_PLAIN_TEXT: f"_TRANSPORT: .*{_ENDED.partition(': ')[2]} in state SSL_HANDSHAKE.*",
}
_NO_CONNECTION: Final = "KafkaConnectionError: .*Unable to bootstrap from .*"
_AIOKAFKA: Final = {
    End.OK: "ok",
    # It takes the challenge after a bad token for the end of the exchange, and finds no broker.
    End.CREDENTIALS: (
        rf"{_NO_CONNECTION}SaslAuthenticationFailed: ({_REFUSED})"
        "|KafkaError: .*No broker metadata found in MetadataResponse.*"
    ),
    End.MECHANISM: f"{_NO_CONNECTION}UnsupportedSaslMechanismError.*",
    End.NO_SASL: f"{_NO_CONNECTION}IllegalSaslStateError.*",
    End.NO_LOGIN: f"{_NO_CONNECTION}Unable to request metadata .*",
    End.CERTIFICATE: f"{_NO_CONNECTION}closed",
    End.BROKER: rf"{_NO_CONNECTION}\[SSL: CERTIFICATE_VERIFY_FAILED\] .*",
    End.NEEDS_TLS: f"{_NO_CONNECTION}(closed|reset by peer)",
    End.NEEDS_PLAIN_TEXT: f"{_NO_CONNECTION}Unable connect to .*",
}
# It may read the end of the connection before the answer in front of it.
_LOST: Final = "KafkaConnectionError: (socket disconnected|.*reset by peer)"
_KAFKA_PYTHON: Final = {
    End.OK: "ok",
    End.CREDENTIALS: rf"KafkaTimeoutError: (.*SaslAuthenticationFailedError: ({_REFUSED})|{_LOST})",
    End.MECHANISM: f"KafkaTimeoutError: (.*UnsupportedSaslMechanismError|{_LOST})",
    End.NO_SASL: f"KafkaTimeoutError: (.*IllegalSaslStateError|{_LOST})",
    End.NO_LOGIN: "KafkaTimeoutError: .*",
    End.CERTIFICATE: rf"KafkaTimeoutError: .*\[SSL: \w*_ALERT_{_ALERT.upper()}\].*",
    End.BROKER: r"KafkaTimeoutError: .*\[SSL: CERTIFICATE_VERIFY_FAILED\] .*",
    End.NEEDS_TLS: f"KafkaTimeoutError: {_LOST}",
    End.NEEDS_PLAIN_TEXT: "KafkaTimeoutError: .*(UNEXPECTED_EOF_WHILE_READING|reset by peer).*",
}
_NO_NODE: Final = "TimeoutException: Timed out waiting for a node assignment.*"
_JAVA: Final = {
    End.OK: "ok",
    End.CREDENTIALS: f"SaslAuthenticationException: ({_REFUSED})",
    End.MECHANISM: (
        "UnsupportedSaslMechanismException: .*not enabled in the server, enabled mechanisms are "
        r"\[SCRAM-SHA-256\]"
    ),
    End.NO_SASL: r"IllegalSaslStateException: .*enabled mechanisms are \[\]",
    End.NO_LOGIN: _NO_NODE,
    End.CERTIFICATE: f"SslAuthenticationException: .*Received fatal alert: {_ALERT}",
    End.BROKER: "SslAuthenticationException: SSL handshake failed <- SSLHandshakeException: .*",
    End.NEEDS_TLS: _NO_NODE,
    End.NEEDS_PLAIN_TEXT: _NO_NODE,
}
_WORDS: Final[Mapping[str, Mapping[End, str]]] = {
    "confluent": _CONFLUENT,
    "aiokafka": _AIOKAFKA,
    "kafka_python": _KAFKA_PYTHON,
}


def fits(client: str, name: str, said: str) -> bool:
    """Whether a client, a version of Java's by its number, says what it has to."""
    expected = _WORDS.get(client, _JAVA)[CASES[name].end]
    return re.fullmatch(expected, said, re.DOTALL) is not None


_ANSWERED: Final = {End.OK, End.CREDENTIALS, End.MECHANISM, End.NO_SASL, End.BROKER}
SAME_ON_BOTH: Final = [name for name, case in CASES.items() if case.end in _ANSWERED]
"""Of which clients say the same to the letter.

Of certificates they tell the alert, OpenSSL's here and Java's there; of a connection that ends
without an answer whether it was closed or reset.
"""


def normal(said: str) -> str:
    """The words without addresses and times, and what depends on them."""
    found = re.sub(r"\(after \d+ms", "(after", said)
    # aiokafka goes on after a bad token, and may find the connection closed by then or not yet.
    found = re.sub(r"(No broker metadata found in MetadataResponse).*", r"\1", found)
    return re.sub(r"127\.0\.0\.1(:|'?, | port=)\d+", "the broker", found)
