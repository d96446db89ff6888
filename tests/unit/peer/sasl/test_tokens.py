"""Bearer tokens of an endpoint: asked for once, kept, and never shown."""

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from oncelog.core.secret import Secret
from oncelog.peer.sasl import tokens
from oncelog.peer.sasl.exchange import SaslAuthenticationError
from oncelog.peer.sasl.tokens import ClientCredentials, FileToken
from oncelog.runtime.framed import DisconnectedError
from tests.unit.broker.test_embedded_ends import run_script

SECRET = "client-geheim"


class Endpoint:
    """An HTTP server that gives what it is told to, and keeps what it was asked."""

    def __init__(self) -> None:
        self.status = 200
        self.answer: object = {"access_token": "t1", "expires_in": 3600}
        self.asked: list[tuple[str, str]] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                endpoint.asked.append((self.headers["Authorization"], body))
                self.send_response(endpoint.status)
                self.send_header("Location", "http://127.0.0.1:1/stolen")
                self.end_headers()
                self.wfile.write(json.dumps(endpoint.answer).encode())

            def log_message(self, *_args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/token"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    monkeypatch.setattr(tokens, "_kept", {})
    made = Endpoint()
    yield made
    made.server.shutdown()
    made.server.server_close()


def source(endpoint: Endpoint) -> ClientCredentials:
    return ClientCredentials(endpoint.url, "me", Secret(SECRET), "kafka")


def test_a_token_is_asked_for_once_and_kept(endpoint: Endpoint) -> None:
    assert source(endpoint)() == source(endpoint)() == Secret("t1")
    ((authorization, body),) = endpoint.asked
    assert base64.b64decode(authorization.removeprefix("Basic ")).decode() == f"me:{SECRET}"
    assert body == "grant_type=client_credentials&scope=kafka"


def test_a_token_without_a_lifetime_is_asked_for_each_time(endpoint: Endpoint) -> None:
    endpoint.answer = {"access_token": "t1"}
    source(endpoint)()
    source(endpoint)()
    assert len(endpoint.asked) == 2


@pytest.mark.parametrize(
    ("status", "answer", "kind", "what"),
    [
        (401, {"error": "invalid_client"}, SaslAuthenticationError, "answers 401 .* to client me"),
        (307, {}, SaslAuthenticationError, "answers 307"),
        (503, {}, DisconnectedError, "answers 503"),
        (200, {"token": "t"}, SaslAuthenticationError, "gave no access_token"),
        (200, [], SaslAuthenticationError, "gave no access_token"),
    ],
)
def test_an_endpoint_that_gives_none_is_named(
    endpoint: Endpoint, status: int, answer: object, kind: type[Exception], what: str
) -> None:
    endpoint.status, endpoint.answer = status, answer
    with pytest.raises(kind, match=what) as raised:
        source(endpoint)()
    assert SECRET not in str(raised.value)


def test_an_endpoint_without_a_server_may_be_asked_again() -> None:
    with pytest.raises(DisconnectedError, match="no answer from the token endpoint"):
        ClientCredentials("http://127.0.0.1:1/t", "me", Secret(SECRET))()


def test_a_file_is_read_again_each_time(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one\n")
    token = FileToken(str(path))
    assert token() == Secret("one")
    path.write_text("two")
    assert token() == Secret("two")
    path.unlink()
    with pytest.raises(SaslAuthenticationError, match=r"token: No such file"):
        token()


@pytest.mark.slow
def test_a_forked_child_does_not_wait_for_a_lock_of_its_parent(
    tmp_path: Path,
) -> None:
    script = """
from oncelog.peer.sasl import tokens
with tokens._lock:
    child = os.fork()
    if child == 0:
        print(tokens._lock.acquire(timeout=0), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""
    done = run_script(script, tmp_path)
    assert done.stdout == "True\n", done.stderr
