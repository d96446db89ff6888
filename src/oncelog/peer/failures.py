"""Explains why a connection could not be opened, and the remedy, with Kafka's config names."""

import ssl

from oncelog.core.errors import OncelogError
from oncelog.runtime.framed import DisconnectedError, FramedConnection
from oncelog.runtime.tls import TlsError

__all__ = ["CLOSED_AFTER_VERSIONS", "explain"]

CLOSED_AFTER_VERSIONS = (
    "closed by the peer at the first request; a listener with SASL does that to a client without "
    "(security.protocol=SASL_PLAINTEXT or SASL_SSL)"
)

_ALERTS = (
    (("CERTIFICATE_REQUIRED", "BAD_CERTIFICATE"), "it asks for a certificate (ssl.keystore.*)"),
    (
        ("UNKNOWN_CA", "CERTIFICATE_UNKNOWN", "CERTIFICATE_EXPIRED", "UNSUPPORTED_CERTIFICATE"),
        "it does not accept our certificate (ssl.keystore.*)",
    ),
    (
        ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL"),
        "it does not speak TLS on this port; use its TLS port, or security.protocol=PLAINTEXT or "
        "SASL_PLAINTEXT",
    ),
    (
        ("PROTOCOL_VERSION", "UNSUPPORTED_PROTOCOL", "HANDSHAKE_FAILURE", "NO_SHARED_CIPHER"),
        "the two sides share no TLS version or cipher (ssl.enabled.protocols, ssl.cipher.suites), "
        "or it asks for a certificate (ssl.keystore.*)",
    ),
)
"""Parts of OpenSSL's reasons, and their meaning for a client."""


def explain(error: DisconnectedError, frames: FramedConnection, with_tls: bool) -> OncelogError:
    """The error to raise for a connection that could not be opened.

    `TlsError` where trying again cannot help. `with_tls`: whether we spoke TLS.
    """
    peer = frames.address
    if frames.peer_speaks_tls:
        return TlsError(f"{peer}: it speaks TLS; set security.protocol=SSL or SASL_SSL")
    failure = frames.tls_failure
    if failure is not None and not isinstance(failure, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return TlsError(f"{peer}: {_meaning(failure)}")
    if with_tls and (failure is not None or isinstance(error.__cause__, ConnectionResetError)):
        return DisconnectedError(
            f"{peer}: closed during the TLS handshake; a port without TLS does that "
            "(security.protocol), or one that shares no version or cipher with us "
            "(ssl.enabled.protocols, ssl.cipher.suites)"
        )
    if any(reason in str(error) for reason in ("closed by the peer", "connection lost")):
        hint = (
            "it may ask for a certificate that it trusts (ssl.keystore.*)"
            if with_tls
            else "a port with TLS may do that (security.protocol=SSL or SASL_SSL)"
        )
        return DisconnectedError(f"{error}; {hint}")
    return error


def _meaning(failure: ssl.SSLError) -> str:
    if isinstance(failure, ssl.SSLCertVerificationError):
        return f"its certificate is refused, {failure.verify_message}: {_advice(failure)}"
    reason = (failure.reason or str(failure)).upper().replace(" ", "_")
    for parts, meaning in _ALERTS:
        if any(part in reason for part in parts):
            return f"no TLS, {meaning} [{reason}]"
    return f"TLS failed [{reason}]"


def _advice(failure: ssl.SSLCertVerificationError) -> str:
    text = failure.verify_message.lower()
    if "mismatch" in text:
        return (
            "connect by a name that the certificate holds, or leave "
            "ssl.endpoint.identification.algorithm empty to skip this check"
        )
    if "expired" in text or "not yet valid" in text:
        return "have it renewed, or look at this machine's clock"
    return "name its authority by ssl.truststore.location or ssl.ca.location"
