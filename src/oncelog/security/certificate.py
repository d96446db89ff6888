"""Reads the names in an X.509 certificate (RFC 5280): its subject and its alternative names.

Python's `ssl` shows them in words of OpenSSL's, and not at all for an own certificate. The subject
is written as Java does (RFC 2253, ``CN=...,O=...``), so that rules for Kafka apply.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final, NamedTuple

__all__ = ["CertificateNames", "DamagedCertificate", "read_end", "read_names"]

_VERSION: Final = 0xA0
_EXTENSIONS: Final = 0xA3
_UTC_TIME: Final = 0x17
_TEXTS: Final = {0x0C: "utf-8", 0x13: "ascii", 0x14: "latin-1", 0x16: "ascii", 0x1E: "utf-16-be"}
"""Encodings of the string types: UTF8, printable, T.61, IA5, BMP."""

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""The types that RFC 2253 names; others are written as their numbers, with the value in hex."""

_ALTERNATIVE_NAMES: Final = "2.5.29.17"
_ESCAPED: Final = frozenset(',+"\\<>;')


class DamagedCertificate(ValueError):  # noqa: N818 - names what was found
    """The bytes are no certificate."""


class CertificateNames(NamedTuple):
    """Whom a certificate stands for."""

    subject: str
    alternatives: frozenset[bytes]
    """The alternative names, as encoded: each has its kind in front."""


class _Value(NamedTuple):
    tag: int
    body: bytes
    whole: bytes


def read_end(der: bytes) -> datetime:
    """Return until when a certificate holds. Raises `DamagedCertificate`."""
    try:
        _, end = _values(_fields(der)[3].body)
        text = end.body.decode("ascii")
        if end.tag == _UTC_TIME:
            # RFC 5280, 4.1.2.5.1: from 1950 to 2049.
            text = ("19" if text >= "5" else "20") + text
        return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
    except (IndexError, StopIteration, ValueError) as error:
        raise DamagedCertificate(f"no certificate: {error}") from None


def _fields(der: bytes) -> list[_Value]:
    """Return the serial number, the algorithm, the issuer, the dates, the subject, and more."""
    (certificate,) = _values(der)
    fields = list(_values(next(_values(certificate.body)).body))
    return fields[1:] if fields[0].tag == _VERSION else fields


def read_names(der: bytes) -> CertificateNames:
    """Return the names in a certificate. Raises `DamagedCertificate`."""
    try:
        fields = _fields(der)
        subject = fields[4]
        sets = [list(_values(each.body)) for each in _values(subject.body)]
        # RFC 2253 begins with the last one.
        parts = ["+".join(map(_attribute, each)) for each in reversed(sets)]
        return CertificateNames(",".join(parts), frozenset(_alternatives(fields)))
    except (IndexError, StopIteration, ValueError) as error:
        raise DamagedCertificate(f"no certificate: {error}") from None


def _values(data: bytes) -> Iterator[_Value]:
    """Read the values in DER that follow each other."""
    position = 0
    while position < len(data):
        tag, size, start = data[position], data[position + 1], position + 2
        if size & 0x80:
            length_bytes = size & 0x7F
            size = int.from_bytes(data[start : start + length_bytes], "big")
            start += length_bytes
        end = start + size
        if end > len(data):
            raise ValueError("it is cut off")
        yield _Value(tag, data[start:end], data[position:end])
        position = end


def _attribute(pair: _Value) -> str:
    kind, value = _values(pair.body)
    oid = _oid(kind.body)
    keyword, encoding = _KEYWORDS.get(oid), _TEXTS.get(value.tag)
    if keyword is None or encoding is None:
        return f"{keyword or oid}=#{value.whole.hex()}"
    return f"{keyword}={_escaped(value.body.decode(encoding))}"


def _escaped(text: str) -> str:
    made = "".join(f"\\{each}" if each in _ESCAPED else each for each in text)
    if text.startswith(("#", " ")):
        made = f"\\{made}"
    if text.endswith(" ") and len(text) > 1:
        made = f"{made[:-1]}\\ "
    return made


def _oid(body: bytes) -> str:
    numbers: list[int] = []
    number = 0
    for byte in body:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, [first, numbers[0] - 40 * first, *numbers[1:]]))


def _alternatives(fields: list[_Value]) -> Iterator[bytes]:
    for field in fields:
        if field.tag != _EXTENSIONS:
            continue
        (extensions,) = _values(field.body)
        for extension in _values(extensions.body):
            kind, *_, content = _values(extension.body)
            if _oid(kind.body) == _ALTERNATIVE_NAMES:
                (names,) = _values(content.body)
                yield from (each.whole for each in _values(names.body))
