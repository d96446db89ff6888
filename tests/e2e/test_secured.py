"""docs/security.md, from nothing to TLS, users and ACLs: its own commands and files."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.documents.blocks import blocks

PAGE = "docs/security.md"
ADDRESS = "localhost:9093"
WAIT_S = 60.0

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed"),
]


def block(begins: str) -> str:
    (found,) = [each.text for each in blocks(PAGE) if each.text.startswith(begins)]
    return found


class Shell:
    """Carries out the page's commands in a folder, with another port."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"localhost:{free.getsockname()[1]}"
        self.folder = folder
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.environment = {**os.environ, "PATH": path}

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text.replace(ADDRESS, self.address))

    def run(self, commands: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-e", "-c", commands],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=WAIT_S,
        )

    def serve(self) -> subprocess.Popen[bytes]:
        command = block("oncelog serve --config server.properties").split()
        process = subprocess.Popen(command, cwd=self.folder, env=self.environment)
        host, _, port = self.address.rpartition(":")
        until_s = time.monotonic() + WAIT_S
        while True:
            try:
                socket.create_connection((host, int(port)), 1).close()
                return process
            except OSError:
                assert process.poll() is None
                assert time.monotonic() < until_s
                time.sleep(0.05)


def test_from_nothing_to_tls_users_and_acls(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    made = shell.run(block("openssl req -x509"))
    assert made.returncode == 0, made.stderr
    shell.write("server.properties", block("node.id=1\nlisteners=SASL_SSL"))
    admin = block(f"bootstrap.servers={ADDRESS}")
    shell.write("admin.properties", admin)
    shell.write("app.properties", admin.replace("admin", "app"))
    added = shell.run(block("printf 'broker-secret"))
    assert added.returncode == 0, added.stderr
    process = shell.serve()
    try:
        allowed = shell.run(block("oncelog topics create orders --command-config admin"))
        assert allowed.returncode == 0, allowed.stderr
        refused = shell.run(
            "oncelog consume orders --max-messages 1 --command-config app.properties"
        )
        assert refused.returncode != 0
        assert "TOPIC_AUTHORIZATION_FAILED" in refused.stderr
        assert "Traceback" not in refused.stderr
        shell.write("stranger.properties", admin.replace("admin-secret", "wrong"))
        unknown = shell.run("oncelog topics list --command-config stranger.properties")
        assert unknown.returncode != 0
        assert "Traceback" not in unknown.stderr
    finally:
        process.terminate()
        assert process.wait(WAIT_S) == 0
