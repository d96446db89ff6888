"""An authority that lives as long as its process, and signs certificates for tests."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

__all__ = ["DAYS", "Issued", "ThrowawayAuthority"]

DAYS: Final = 30
"""How long the certificates of an authority are valid."""

_BEGUN_DAYS: Final = 2
"""How long ago certificates begin to be valid, since clocks differ."""


class Issued(NamedTuple):
    """A certificate and its key, as PEM."""

    certificate: str
    key: str


class ThrowawayAuthority:
    """One authority. Its keys are of an elliptic curve, which takes a millisecond."""

    def __init__(self, name: str) -> None:
        self._name = _named(name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(self._name, self._key, DAYS)
        builder = builder.add_extension(x509.BasicConstraints(True, None), critical=True)
        self.pem = _pem(builder.sign(self._key, hashes.SHA256()))
        """Its own certificate, for those who trust it."""

    def sign(self, name: str, hosts: Sequence[str], days: int) -> Issued:
        """Return a new certificate for hosts; with `days` below 0 it has expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([_host(host) for host in hosts])
        builder = self._builder(_named(name), key, days).add_extension(names, critical=False)
        secret = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        return Issued(_pem(builder.sign(self._key, hashes.SHA256())), secret.decode())

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=_BEGUN_DAYS))
            .not_valid_after(now + datetime.timedelta(days=days))
        )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
