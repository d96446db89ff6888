"""What an answer may be: exactly one reply to the request, in its version, or a closed connection.

Judged are the frame's size, the correlation id, and that a client could read all of the reply. Not
judged is whether the error code is the best one; that is the work of the handlers' own tests.
"""

from __future__ import annotations

import struct
from typing import Any

from oncelog.core.errors import OncelogError
from oncelog.protocol import codec
from oncelog.protocol.api import ApiKey, accepts
from oncelog.protocol.fetch import parse_fetch_response
from oncelog.protocol.produce import parse_produce_response
from tests.fuzz.target import Kind, Outcome

WAITING_APIS = frozenset({ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})
"""Requests that wait as long as they ask to; all others have to be answered within a minute."""


class Verdict:
    """Why an outcome is wrong (or None), and the parsed reply where there is one."""

    __slots__ = ("api", "finding", "response")

    def __init__(
        self, finding: str | None, api: ApiKey | None = None, response: Any = None
    ) -> None:
        self.finding = finding
        self.api = api
        self.response = response


FINE = Verdict(None)


def judge(data: bytes, outcome: Outcome, *, read_answer: bool) -> Verdict:
    """Judge what became of the frame `data` (without its size)."""
    kind, answer = outcome
    if kind is Kind.CLOSED:
        return FINE if not answer else Verdict(f"{len(answer)} bytes before the connection closed")
    if kind is Kind.HELD:
        return Verdict("a whole frame came, and more bytes are awaited")
    if len(data) < 8:
        return Verdict(f"{len(data)} bytes are no request, yet: {kind.value}")
    api_key, version, correlation_id = struct.unpack_from(">hhi", data)
    try:
        api = ApiKey(api_key)
    except ValueError:
        return Verdict(f"API {api_key} does not exist, yet: {kind.value}")
    if kind is Kind.SILENT:
        return FINE if api is ApiKey.PRODUCE else Verdict(f"{api.name} v{version} got no answer")
    if kind is Kind.WAITING:
        return FINE if api in WAITING_APIS else Verdict(f"{api.name} v{version} hangs")
    if len(answer) < 8 or int.from_bytes(answer[:4], "big") != len(answer) - 4:
        return Verdict(f"{api.name} v{version}: not exactly one frame in {len(answer)} bytes")
    if int.from_bytes(answer[4:8], "big", signed=True) != correlation_id:
        return Verdict(f"{api.name} v{version}: another correlation id")
    if not read_answer:
        return FINE
    return _read(api, version, answer[4:])


def _read(api: ApiKey, version: int, answer: bytes) -> Verdict:
    if not accepts(api, version):
        if api is not ApiKey.API_VERSIONS:
            return Verdict(f"{api.name} v{version} is not served, yet answered")
        # KIP-511: the refusal is written as version 0.
        version = 0
    try:
        _, offset = codec.parse_response_header(api, version, answer)
        response: Any
        if api is ApiKey.PRODUCE:
            response = parse_produce_response(answer, version, offset)
        elif api is ApiKey.FETCH:
            response = parse_fetch_response(answer, version, offset)
        else:
            response = codec.parse_response(api, version, answer, offset)
    except OncelogError as error:
        return Verdict(f"{api.name} v{version}: the answer cannot be read: {error}")
    return Verdict(None, api, response)
