"""Frames of those who are not logged in: right ones, and what becomes of them by mistakes."""

from __future__ import annotations

import random
from collections.abc import Iterator

from oncelog.protocol import codec
from oncelog.protocol.api import VERSIONS, ApiKey
from oncelog.protocol.messages.api_versions import ApiVersionsRequest
from oncelog.protocol.messages.metadata import MetadataRequest
from oncelog.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from oncelog.protocol.messages.sasl_handshake import SaslHandshakeRequest

__all__ = ["SECRET", "login_frames"]

SECRET = "geheim-geheim"
"""The password of alice, which no frame has."""

_MESSAGES = (
    b"\0alice\0wrong",
    b"alice\0bob\0wrong",
    b"n,,n=alice,r=nonce",
    b"y,a=alice,n=alice,r=" + b"x" * 300,
    b"c=biws,r=nonceserver,p=" + b"AAAA" * 12,
    b"n,,\x01auth=Bearer eyJhbGciOiJub25lIn0.e30.\x01\x01",
    b"\x01",
    b"",
)
_NUMBERS = (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\xff\xff", b"\x80\0\0\0", b"\xff\x01")


def _right() -> list[bytes]:
    unnamed = ApiVersionsRequest()
    named = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    newest = VERSIONS[ApiKey.API_VERSIONS].max
    requests: list[tuple[ApiKey, int, object]] = [
        *((ApiKey.API_VERSIONS, version, unnamed) for version in range(3)),
        *((ApiKey.API_VERSIONS, version, named) for version in range(3, newest + 1)),
        (ApiKey.METADATA, 1, MetadataRequest(topics=())),
    ]
    for mechanism in ("PLAIN", "SCRAM-SHA-256", "OAUTHBEARER", "GSSAPI", "x" * 1000):
        shaken = SaslHandshakeRequest(mechanism=mechanism)
        requests += [(ApiKey.SASL_HANDSHAKE, version, shaken) for version in (0, 1)]
    for message in _MESSAGES:
        said = SaslAuthenticateRequest(auth_bytes=message)
        requests += [(ApiKey.SASL_AUTHENTICATE, version, said) for version in (0, 1, 2)]
    return [
        codec.encode_request(key, version, 1, "client", request)
        for key, version, request in requests
    ] + list(_MESSAGES)


def login_frames(seed: int) -> Iterator[bytes]:
    """Frames without end, of at most 64 KB; half of them are right."""
    draw = random.Random(seed)
    right = _right()
    while True:
        frame = bytearray(draw.choice(right))
        kind = draw.randrange(10)
        if kind == 0:
            del frame[draw.randrange(len(frame) + 1) :]
        elif kind == 1:
            frame += draw.randbytes(draw.choice((1, 30, 5_000)))
        elif kind == 2 and frame:
            frame[draw.randrange(len(frame))] ^= 1 << draw.randrange(8)
        elif kind == 3:
            at = draw.randrange(len(frame) + 1)
            number = draw.choice(_NUMBERS)
            frame[at : at + len(number)] = number
        elif kind == 4:
            frame = bytearray(draw.randbytes(draw.choice((0, 1, 9, 60, 60_000))))
        yield bytes(frame)
