"""Chooses TLS versions and cipher suites by Java's names or OpenSSL's."""

import re
from typing import Final

from oncelog.core.config_definition import ConfigError
from oncelog.runtime.tls import PROTOCOLS

__all__ = ["versions_and_ciphers"]

_TLS_13_SUITE: Final = re.compile(r"TLS_(AES|CHACHA20)_\w+")


def versions_and_ciphers(
    protocols: tuple[str, ...], suites: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The values of `ssl.enabled.protocols` and `ssl.cipher.suites` as `Tls` takes them.

    Empty ones leave the choice to the library. Raises `ConfigError`.
    """
    protocols = protocols or tuple(PROTOCOLS)
    for protocol in protocols:
        if protocol not in PROTOCOLS:
            raise ConfigError(
                f"ssl.enabled.protocols {protocol!r} is not one of {', '.join(PROTOCOLS)}"
            )
    if not suites:
        return protocols, ()
    older = [suite for suite in suites if not _TLS_13_SUITE.fullmatch(suite)]
    # The suites of TLS 1.3 cannot be chosen among; leaving all of them out excludes the version.
    spoken = {"TLSv1.2": bool(older), "TLSv1.3": len(older) < len(suites)}
    protocols = tuple(protocol for protocol in protocols if spoken[protocol])
    if not protocols:
        raise ConfigError("ssl.cipher.suites and ssl.enabled.protocols have no version in common")
    return protocols, tuple(_openssl_name(suite) for suite in older)


def _openssl_name(suite: str) -> str:
    """OpenSSL's name of a suite that is named as in Java, or as it is."""
    exchange, separator, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    if not separator:
        return suite
    cipher = re.sub(r"AES_(\d+)_CBC", r"AES\1", cipher)
    cipher = re.sub(r"AES_(\d+)", r"AES\1", cipher).replace("POLY1305_SHA256", "POLY1305")
    parts = ([] if exchange == "RSA" else [exchange]) + [cipher]
    return "-".join(parts).replace("_", "-")
