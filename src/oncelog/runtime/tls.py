"""Builds the `ssl.SSLContext` of a TLS connection.

Certificates are verified, and so is the name of the host, unless disabled. Files are read once,
when the context is made. This module knows PEM only, and nothing of Kafka.
"""

import os
import ssl
import tempfile
from dataclasses import dataclass
from typing import Final, Literal

from oncelog.core.errors import OncelogError
from oncelog.core.secret import Secret
from oncelog.runtime.tls_alert import ServerContext

__all__ = ["CLIENT_AUTH", "PROTOCOLS", "ClientAuth", "Tls", "TlsError"]

PROTOCOLS: Final = {
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}
"""Versions that may be enabled; older ones are broken (RFC 8996)."""


ClientAuth = Literal["none", "requested", "required"]

CLIENT_AUTH: Final[dict[ClientAuth, ssl.VerifyMode]] = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
"""Whether a server asks for a certificate of the client's, by Kafka's names."""


class TlsError(OncelogError):
    """TLS is impossible with this peer or these settings; a retry cannot help."""


@dataclass(frozen=True, slots=True)
class Tls:
    """The certificates and protocols of TLS connections; certificates and keys are PEM.

    trusted: certificates of authorities; None means those of the system. certificates: our own
    certificate, with those between it and its authority. protocols: names of `PROTOCOLS`. ciphers:
    OpenSSL's names, for TLS 1.2 (1.3 has no choice to make). verify_host: the certificate must name
    the host that was asked for.
    """

    trusted: str | None = None
    certificates: str | None = None
    key: Secret | None = None
    key_password: Secret | None = None
    protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    ciphers: tuple[str, ...] = ()
    verify_host: bool = True

    def context(self) -> ssl.SSLContext:
        """The context of a client. Raises `TlsError` in one sentence."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = self.verify_host
        self._trust(context, ssl.Purpose.SERVER_AUTH)
        return self._completed(context)

    def server_context(self, client_auth: ClientAuth) -> ssl.SSLContext:
        """The context of a server. Raises `TlsError` in one sentence."""
        context = ServerContext(ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = CLIENT_AUTH[client_auth]
        if client_auth != "none":
            self._trust(context, ssl.Purpose.CLIENT_AUTH)
        return self._completed(context)

    def _completed(self, context: ssl.SSLContext) -> ssl.SSLContext:
        versions = [PROTOCOLS[name] for name in self.protocols]
        context.minimum_version, context.maximum_version = min(versions), max(versions)
        if self.certificates is not None:
            self._show(context, self.certificates)
        if self.ciphers:
            try:
                context.set_ciphers(":".join(self.ciphers))
            except ssl.SSLError:
                raise TlsError(f"no cipher of {', '.join(self.ciphers)} is known here") from None
        return context

    def _trust(self, context: ssl.SSLContext, purpose: ssl.Purpose) -> None:
        if self.trusted is None:
            context.load_default_certs(purpose)
            return
        try:
            context.load_verify_locations(cadata=self.trusted)
        except (ssl.SSLError, ValueError) as error:
            raise TlsError(f"the trusted certificates are no PEM: {_reason(error)}") from None

    def _show(self, context: ssl.SSLContext, certificates: str) -> None:
        """Load our own certificate and key, which OpenSSL takes from a file only."""
        key = self.key.value if self.key is not None else ""
        descriptor, path = tempfile.mkstemp(prefix="oncelog-", suffix=".pem")
        try:
            with os.fdopen(descriptor, "w") as stream:
                stream.write(f"{certificates}\n{key}\n")
            context.load_cert_chain(path, password=self._password)
        except ssl.SSLError as error:
            raise TlsError(f"the certificate and its key do not work: {_reason(error)}") from None
        finally:
            os.unlink(path)

    def _password(self) -> str:
        # Without it OpenSSL would ask on the terminal.
        if self.key_password is None:
            raise TlsError(
                "the key is encrypted, and no password for it is given (ssl.key.password)"
            )
        return self.key_password.value


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", None)
    return str(reason or error).lower().replace("_", " ")
