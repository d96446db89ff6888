"""Certificates for tests: an authority, and what it signs."""

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Certificate:
    """One certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def key_pem(self, password: str | None = None) -> str:
        protection: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password is not None:
            protection = serialization.BestAvailableEncryption(password.encode())
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, protection
        ).decode()

    def write(self, path: Path, password: str | None = None) -> str:
        """Key and certificate in one PEM file, as a keystore of Kafka's; returns its name."""
        path.write_text(self.key_pem(password) + self.pem)
        return str(path)

    def pkcs12(self, password: str, authority: "Certificate | None" = None) -> bytes:
        return pkcs12.serialize_key_and_certificates(
            b"own",
            self.key,
            self.certificate,
            [authority.certificate] if authority else None,
            serialization.BestAvailableEncryption(password.encode()),
        )


class Authority(Certificate):
    """A certificate that signs others."""

    @classmethod
    def make(cls, name: str = "test authority") -> "Authority":
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(name, key, name, 365)
        builder = builder.add_extension(x509.BasicConstraints(True, None), critical=True)
        return cls(builder.sign(key, hashes.SHA256()), key)

    def sign(
        self,
        name: str | x509.Name,
        *hosts: str,
        days: int = 365,
        first: x509.ExtensionType | None = None,
    ) -> Certificate:
        """A certificate for `name`, good for `hosts`; with `days` below 0 it has expired.

        `first` is an extension in front of the names of the hosts.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = self.certificate.subject.rfc4514_string().removeprefix("CN=")
        builder = _builder(name, key, issuer, days)
        if first is not None:
            builder = builder.add_extension(first, critical=False)
        if hosts:
            names = x509.SubjectAlternativeName([_host(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        return Certificate(builder.sign(self.key, hashes.SHA256()), key)


def _builder(
    name: str | x509.Name, key: ec.EllipticCurvePrivateKey, issuer: str, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    if isinstance(name, str):
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=400))
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
