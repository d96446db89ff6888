"""Files of certificates and keys: PEM, and PKCS12 where `cryptography` is installed.

A store's format is detected from its bytes, whatever its name or ``ssl.*store.type``. Errors name
the setting and the command that helps.
"""

from oncelog.core.config_definition import ConfigError
from oncelog.core.secret import Secret
from oncelog.runtime.pem import Store, pem, read_bytes

__all__ = ["read_store"]


def read_store(setting: str, path: str, password: Secret | None) -> Store:
    """The certificates and the key of a file. Raises `ConfigError`."""
    data = read_bytes(setting, path)
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
