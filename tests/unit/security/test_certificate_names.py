"""The names in certificates, as Java writes them."""

from __future__ import annotations

import random

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from oncelog.security.certificate import DamagedCertificate, read_end, read_names
from tests.support.certificates import Authority


def der(authority: Authority, name: str | x509.Name, *hosts: str) -> bytes:
    return authority.sign(name, *hosts).certificate.public_bytes(Encoding.DER)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.make()


def test_the_subject_begins_with_its_last_part(authority: Authority) -> None:
    parts = [
        (NameOID.COUNTRY_NAME, "US"),
        (NameOID.ORGANIZATION_NAME, "Sun, Inc."),
        (NameOID.ORGANIZATIONAL_UNIT_NAME, " a+b;"),
        (NameOID.USER_ID, "#1"),
        (NameOID.DOMAIN_COMPONENT, "com"),
        (NameOID.EMAIL_ADDRESS, "d@x"),
        (NameOID.COMMON_NAME, "Dük\\e "),
    ]
    name = x509.Name([x509.NameAttribute(kind, text) for kind, text in parts])
    assert read_names(der(authority, name)).subject == (
        r"CN=Dük\\e\ ,1.2.840.113549.1.9.1=#1603644078,DC=com,UID=\#1,OU=\ a\+b\;,O=Sun\, Inc.,C=US"
    )


def test_several_parts_of_one_set_are_joined(authority: Authority) -> None:
    pair = [
        x509.NameAttribute(NameOID.COMMON_NAME, "a"),
        x509.NameAttribute(NameOID.USER_ID, "b"),
    ]
    name = x509.Name([x509.RelativeDistinguishedName(pair)])
    assert set(read_names(der(authority, name)).subject.split("+")) == {"CN=a", "UID=b"}


def test_alternative_names_are_told_apart_by_their_kind(authority: Authority) -> None:
    found = read_names(der(authority, "a", "kafka.example", "127.0.0.1")).alternatives
    assert found == {b"\x82\rkafka.example", b"\x87\x04\x7f\0\0\1"}
    assert read_names(der(authority, "a")).alternatives == frozenset()


def test_a_certificate_that_is_cut_off_names_no_one(authority: Authority) -> None:
    whole = der(authority, "a", "kafka.example")
    for size in range(len(whole)):
        with pytest.raises(DamagedCertificate):
            read_names(whole[:size])


def test_alternative_names_are_found_behind_other_extensions(authority: Authority) -> None:
    first = x509.BasicConstraints(ca=False, path_length=None)
    whole = authority.sign("a", "kafka.example", first=first).certificate
    found = read_names(whole.public_bytes(Encoding.DER)).alternatives
    assert found == {b"\x82\rkafka.example"}


def test_damaged_bytes_raise_one_error_and_never_hang(authority: Authority) -> None:
    whole = der(authority, "a", "kafka.example")
    rng = random.Random(7)
    for _ in range(3000):
        damaged = bytearray(whole[: rng.randrange(len(whole) + 1)])
        for _ in range(rng.randrange(4)):
            if damaged:
                damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        try:
            read_names(bytes(damaged))
        except DamagedCertificate:
            continue


@pytest.mark.parametrize("days", [-1, 0, 365, 365 * 30, 365 * 200])
def test_the_end_is_read_in_both_formats_of_time(authority: Authority, days: int) -> None:
    """From 2050 on a certificate has the year in four digits."""
    made = authority.sign("a", days=days).certificate
    assert read_end(made.public_bytes(Encoding.DER)) == made.not_valid_after_utc


def test_the_end_of_what_is_no_certificate_is_damage(authority: Authority) -> None:
    whole = der(authority, "a")
    for size in (0, 1, 40, 100):
        with pytest.raises(DamagedCertificate):
            read_end(whole[:size])
