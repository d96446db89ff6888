"""The keywords of a login that kafka-python and aiokafka have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def login_keywords(way: dict[str, Any], provider_of: Callable[[str], object]) -> dict[str, Any]:
    """Where to connect, and as whom; `provider_of` makes the client's own provider of a token."""
    given = {"bootstrap_servers": way["address"], "security_protocol": way["protocol"]}
    if way["mechanism"]:
        given["sasl_mechanism"] = way["mechanism"]
    if way["mechanism"] == "OAUTHBEARER":
        given["sasl_oauth_token_provider"] = provider_of(way["secret"])
    elif way["mechanism"]:
        given |= {"sasl_plain_username": way["user"], "sasl_plain_password": way["secret"]}
    return given
