"""Certificates and keys in PEM, as text or in files.

A file's format is detected from its bytes, whatever its name: files that Java calls JKS have been
PKCS12 for years. Errors name the setting and the command that helps.
"""

import re
from pathlib import Path
from typing import Final, NamedTuple

from oncelog.core.config_definition import ConfigError
from oncelog.core.secret import Secret

__all__ = ["Store", "pem", "read_bytes", "read_pem"]

_JKS_MAGIC: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_DER_START: Final = b"\x30"
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
    for match in _PEM.finditer(text):
        kind, body = str(match[1]), str(match[2])
        block = f"-----BEGIN {kind}-----\n{_wrapped(body)}\n-----END {kind}-----\n"
        if kind.endswith("PRIVATE KEY"):
            keys.append(block)
        elif kind.endswith("CERTIFICATE"):
            certificates.append(block)
    if not certificates and not keys:
        raise ConfigError(f"{setting} holds no PEM (-----BEGIN CERTIFICATE-----)")
    return Store("".join(certificates), Secret(keys[0]) if keys else None)


def read_bytes(setting: str, path: str) -> bytes:
    """The bytes of a file, which is no JKS store. Raises `ConfigError`."""
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
    return data


def read_pem(setting: str, path: str) -> Store:
    """The certificates and the key of a PEM file. Raises `ConfigError`."""
    data = read_bytes(setting, path)
    if data[:1] == _DER_START:
        raise ConfigError(
            f"{setting}: {path} is a PKCS12 store, and PEM is read here; convert it: openssl "
            f"pkcs12 -in {path} -out store.pem -nodes"
        )
    return pem(setting, data.decode("utf-8", "replace"))


def _wrapped(body: str) -> str:
    if "Proc-Type" in body:
        # An old encrypted key has headers, whose lines count.
        return body.strip()
    text = "".join(body.split())
    return "\n".join(text[start : start + 64] for start in range(0, len(text), 64))
