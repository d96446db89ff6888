"""Certificates and keys: PEM as text or in files, PKCS12 where `cryptography` is installed.

A store's format is detected from its bytes, whatever its name or ``ssl.*store.type``: files that
Java calls JKS have been PKCS12 for years. Errors name the setting and the command that helps.
"""

import re
from pathlib import Path
from typing import Final, NamedTuple

from oncelog.core.config_definition import ConfigError
from oncelog.core.secret import Secret

__all__ = ["Store", "pem", "read_store"]

_JKS_MAGIC: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_PEM: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)


class Store(NamedTuple):
    """The contents of a file: certificates, and perhaps a key, as PEM."""

    certificates: str
    key: Secret | None


def pem(setting: str, text: str) -> Store:
    """PEM as Kafka takes it: line breaks may have become blanks, as in a properties file.

    Raises `ConfigError` where there is neither a certificate nor a key.
    """
    certificates, keys = [], []
    for kind, body in _PEM.findall(text):
        block = f"-----BEGIN {kind}-----\n{_wrapped(body)}\n-----END {kind}-----\n"
        if kind.endswith("PRIVATE KEY"):
            keys.append(block)
        elif kind.endswith("CERTIFICATE"):
            certificates.append(block)
    if not certificates and not keys:
        raise ConfigError(f"{setting} holds no PEM (-----BEGIN CERTIFICATE-----)")
    return Store("".join(certificates), Secret(keys[0]) if keys else None)


def read_store(setting: str, path: str, password: Secret | None) -> Store:
    """The certificates and the key of a file. Raises `ConfigError`."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{setting}: cannot read {path}: {error.strerror}") from None
    if data[:4] in _JKS_MAGIC:
        raise ConfigError(
            f"{setting}: {path} is a JKS store, which only Java reads; convert it: keytool "
            f"-importkeystore -srckeystore {path} -destkeystore store.p12 -deststoretype PKCS12, "
            "then openssl pkcs12 -in store.p12 -out store.pem -nodes"
        )
    if data[:1] == b"\x30":
        return _read_pkcs12(setting, path, data, password)
    return pem(setting, data.decode("utf-8", "replace"))


def _read_pkcs12(setting: str, path: str, data: bytes, password: Secret | None) -> Store:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        raise ConfigError(
            f"{setting}: to read the PKCS12 store {path} install the package cryptography, or "
            f"convert it: openssl pkcs12 -in {path} -out store.pem -nodes"
        ) from None
    try:
        store = pkcs12.load_pkcs12(data, password.value.encode() if password else None)
    except ValueError:
        raise ConfigError(
            f"{setting}: {path} is no PKCS12 store, or its password is wrong"
        ) from None
    found = [store.cert, *store.additional_certs] if store.cert else store.additional_certs
    encoding = serialization.Encoding.PEM
    texts = [entry.certificate.public_bytes(encoding).decode() for entry in found]
    if store.key is None:
        return Store("".join(texts), None)
    key = store.key.private_bytes(
        encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Store("".join(texts), Secret(key.decode()))


def _wrapped(body: str) -> str:
    if "Proc-Type" in body:
        # An old encrypted key has headers, whose lines count.
        return body.strip()
    text = "".join(body.split())
    return "\n".join(text[start : start + 64] for start in range(0, len(text), 64))
