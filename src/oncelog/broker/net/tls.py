"""The TLS of one listener: its certificates, kept up to date, and who its clients are by theirs.

A file that has changed is taken for the next connections, without a restart; one that cannot be
used is one line in the log, and what was there before goes on.
"""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
from typing import Final, cast

from oncelog.core.config import BrokerConfig
from oncelog.core.config_definition import ConfigError
from oncelog.core.errors import OncelogError
from oncelog.core.listeners import ListenerConfig
from oncelog.core.secret import Secret
from oncelog.core.security_limits import TLS_HANDSHAKE_MS_MAX
from oncelog.runtime.cipher_suites import versions_and_ciphers
from oncelog.runtime.file_mark import FileMark, mark_of
from oncelog.runtime.network import SystemNetwork
from oncelog.runtime.pem import Store, pem, read_pem
from oncelog.runtime.tls import ClientAuth, Tls
from oncelog.security.certificate import CertificateNames, DamagedCertificate, read_names
from oncelog.security.principal_rules import ANONYMOUS, PrincipalRules

__all__ = ["ListenerTls", "handshake_problem"]

log = logging.getLogger(__name__)

_PLAIN_TEXT: Final = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST"})
_END: Final = "-----END CERTIFICATE-----"


class ListenerTls:
    """Reads the settings and files of a listener. Raises `ConfigError` where they do not work.

    `outgoing`, if given, connects to other brokers with the same certificate.
    """

    def __init__(
        self, config: BrokerConfig, given: ListenerConfig, outgoing: SystemNetwork | None = None
    ) -> None:
        self._config = config.within(given.name)
        self._name = given.name
        self._outgoing = outgoing
        # Before the files are read: one that changes meanwhile is read again.
        self._marks = self._look_at_files()
        try:
            self._rules = PrincipalRules(
                self._config.get_str("ssl.principal.mapping.rules") or "DEFAULT"
            )
            self.context, self._names = self._load()
        except OncelogError as error:
            raise ConfigError(f"the listener {given.name} cannot have TLS: {error}") from None

    def principal_of(self, transport: asyncio.BaseTransport) -> str | None:
        """Return the user that a connection's certificate stands for; None if no rule applies."""
        shown = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
        if shown is None:
            return ANONYMOUS
        try:
            return self._rules.name_of(read_names(shown).subject)
        except DamagedCertificate:
            return None

    def renew(self) -> None:
        """Take files that have changed; this blocks. What was there before stays if they fail."""
        marks = self._look_at_files()
        if marks == self._marks:
            return
        self._marks = marks
        try:
            context, names = self._load()
            self._check_names(names)
        except OncelogError as error:
            log.error(
                "the certificates of the listener %s have changed and cannot be used, so the "
                "ones before stay: %s",
                *(self._name, error),
            )
            return
        self.context, self._names = context, names
        log.info("took the new certificates of the listener %s: %s", self._name, names.subject)

    def _look_at_files(self) -> tuple[FileMark | None, ...]:
        keys = ("ssl.keystore.location", "ssl.truststore.location")
        return tuple(mark_of(self._config.get_str(key)) for key in keys)

    def _load(self) -> tuple[ssl.SSLContext, CertificateNames]:
        config = self._config
        own = self._own_certificate()
        password = config.get_str("ssl.key.password")
        protocols, ciphers = versions_and_ciphers(
            config.get_list("ssl.enabled.protocols"), config.get_list("ssl.cipher.suites")
        )
        verifies_host = config.get_str("ssl.endpoint.identification.algorithm") == "https"
        tls = Tls(
            trusted=self._trusted(),
            certificates=own.certificates,
            key=own.key,
            key_password=Secret(password) if password else None,
            protocols=protocols,
            ciphers=ciphers,
            verify_host=verifies_host,
        )
        context = tls.server_context(cast(ClientAuth, config.get_str("ssl.client.auth")))
        if self._outgoing is not None:
            self._outgoing.tls = tls.context()
        first, _, _ = own.certificates.partition(_END)
        try:
            return context, read_names(ssl.PEM_cert_to_DER_cert(first + _END))
        except ValueError as error:
            raise ConfigError(f"the certificate cannot be read: {error}") from None

    def _own_certificate(self) -> Store:
        config = self._config
        chain = config.get_str("ssl.keystore.certificate.chain")
        key = config.get_str("ssl.keystore.key")
        path = config.get_str("ssl.keystore.location")
        if path and (chain or key):
            raise ConfigError("ssl.keystore.location and ssl.keystore.key exclude each other")
        if path:
            own = read_pem("ssl.keystore.location", path)
        elif chain and key:
            certificates = pem("ssl.keystore.certificate.chain", chain).certificates
            own = Store(certificates, pem("ssl.keystore.key", key).key)
        else:
            raise ConfigError(
                "it has no certificate: ssl.keystore.location, or ssl.keystore.certificate.chain "
                "with ssl.keystore.key"
            )
        if not own.certificates or own.key is None:
            missing = "private key" if own.certificates else "certificate"
            raise ConfigError(f"{path or 'ssl.keystore.*'} has no {missing}")
        return own

    def _trusted(self) -> str | None:
        config = self._config
        text = config.get_str("ssl.truststore.certificates")
        path = config.get_str("ssl.truststore.location")
        if path and text:
            raise ConfigError(
                "ssl.truststore.location and ssl.truststore.certificates exclude each other"
            )
        if not path and not text:
            return None
        key = f"ssl.truststore.{'location' if path else 'certificates'}"
        found = read_pem(key, path) if path else pem(key, text or "")
        if not found.certificates:
            raise ConfigError(f"{key} holds no certificate")
        return found.certificates

    def _check_names(self, new: CertificateNames) -> None:
        """Check that a new certificate has the names of the one before, by Kafka's rule."""
        old, config = self._names, self._config
        if new.subject != old.subject and not config.get_bool("ssl.allow.dn.changes"):
            raise ConfigError(
                f"Keystore DistinguishedName does not match: existing={old.subject}, "
                f"new={new.subject} (ssl.allow.dn.changes)"
            )
        if not new.alternatives >= old.alternatives and not config.get_bool(
            "ssl.allow.san.changes"
        ):
            raise ConfigError(
                "Keystore SubjectAltNames do not match: the new certificate lacks "
                f"{len(old.alternatives - new.alternatives)} of them (ssl.allow.san.changes)"
            )


def handshake_problem(error: BaseException) -> str:
    """Return why a handshake has failed, in a clause about the client."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    reason = str(getattr(error, "reason", None) or "")
    if reason in _PLAIN_TEXT:
        return "it does not speak TLS, and this listener does: see security.protocol of the client"
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "it shows no certificate, and ssl.client.auth=required asks for one"
    if "ALERT" in reason:
        return f"it does not go on with the TLS handshake: {_words(reason)}"
    if reason:
        return f"the TLS handshake failed: {_words(reason)}"
    if isinstance(error, ConnectionAbortedError):
        return f"the TLS handshake took longer than {TLS_HANDSHAKE_MS_MAX // 1000} s"
    return "it went away during the TLS handshake"


def _words(reason: str) -> str:
    return re.sub(r"^(sslv3|tlsv1[13]?) ", "", reason.lower().replace("_", " "))
