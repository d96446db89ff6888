"""Bearer tokens: configured, read from a file, or requested with client credentials (KIP-768).

A token of an endpoint is cached by the process for most of its lifetime, because every connection
of every task needs one. Everything here blocks, so it is called in the executor.
"""

import base64
import json
import os
import threading
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Final

from oncelog.core.secret import Secret
from oncelog.core.security_limits import TOKEN_ENDPOINT_TIMEOUT_S, TOKEN_RESPONSE_BYTES_MAX
from oncelog.peer.sasl.exchange import SaslAuthenticationError
from oncelog.runtime.clock import SystemClock
from oncelog.runtime.framed import DisconnectedError

__all__ = ["ClientCredentials", "FileToken"]

USED_SHARE: Final = 0.8
"""The share of a token's lifetime during which the cached token is used."""

_kept: "dict[ClientCredentials, tuple[Secret, float]]" = {}
# Held during a request, so that concurrent threads send only one.
_lock = threading.Lock()


def _forked() -> None:
    """Replace it in a child: a thread of the parent may hold it, which the child does not have."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forked)


@dataclass(frozen=True, slots=True)
class FileToken:
    """A token in a file, read again at each authentication, so that it may be replaced."""

    path: str

    def __call__(self) -> Secret:
        """The token. Raises `SaslAuthenticationError`."""
        try:
            return Secret(Path(self.path).read_text().strip())
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is no text"
            raise SaslAuthenticationError(
                f"cannot read the token in {self.path}: {reason}"
            ) from None


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """OAuth's client credentials grant (RFC 6749, section 4.4) at an endpoint."""

    url: str
    client_id: str
    client_secret: Secret
    scope: str | None = None

    def __call__(self) -> Secret:
        """Return the cached token, or a new one when that is close to its expiry.

        Raises `SaslAuthenticationError` for a refusal, `DisconnectedError` without an answer.
        """
        with _lock:
            now_ms = SystemClock().monotonic_ms()
            token, until_ms = _kept.get(self, (Secret(""), 0.0))
            if now_ms >= until_ms:
                token, life_s = self._ask()
                _kept[self] = token, now_ms + life_s * 1000 * USED_SHARE
            return token

    def _ask(self) -> tuple[Secret, float]:
        """Return (token, its lifetime in seconds; 0 if the endpoint does not send it)."""
        fields = {"grant_type": "client_credentials"}
        if self.scope:
            fields["scope"] = self.scope
        pair = f"{self.client_id}:{self.client_secret.value}".encode()
        request = urllib.request.Request(
            self.url,
            data=urllib.parse.urlencode(fields).encode(),
            headers={
                "Authorization": "Basic " + base64.b64encode(pair).decode(),
                "Accept": "application/json",
            },
        )
        answer = self._read(request)
        token, life_s = answer.get("access_token"), answer.get("expires_in", 0)
        if not isinstance(token, str) or not token:
            raise SaslAuthenticationError(f"{self.url} gave no access_token")
        return Secret(token), life_s if isinstance(life_s, int | float) else 0

    def _read(self, request: urllib.request.Request) -> dict[str, object]:
        # A redirection would take the credentials to another host.
        opener = urllib.request.build_opener(_NoRedirection)
        try:
            with opener.open(request, timeout=TOKEN_ENDPOINT_TIMEOUT_S) as response:
                answer = json.loads(response.read(TOKEN_RESPONSE_BYTES_MAX))
        except urllib.error.HTTPError as error:
            with error:
                text = f"the token endpoint {self.url} answers {error.code} {error.reason}"
            if error.code >= 500:
                raise DisconnectedError(text) from None
            raise SaslAuthenticationError(f"{text} to client {self.client_id}") from None
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            text = f"no answer from the token endpoint {self.url}: {reason}"
            raise DisconnectedError(text) from None
        except ValueError:
            raise SaslAuthenticationError(f"the answer of {self.url} is no JSON") from None
        found: dict[str, object] = answer if isinstance(answer, dict) else {}
        return found


class _NoRedirection(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_args: object) -> None:
        return None
