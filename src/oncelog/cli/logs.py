"""The log lines of a command, on standard error: which ones, and as text or as JSON."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import click

__all__ = ["logging_options"]

F = TypeVar("F", bound=Callable[..., Any])

LEVELS: Final = ("debug", "info", "warning", "error")
_TEXT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_CHOSEN: Final = "oncelog.cli.logs"


class StderrHandler(logging.Handler):
    """Writes to the present standard error; a closed terminal is ignored."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        try:
            click.echo(self.format(record), err=True)
        except OSError:
            return


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, message, and exception where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """The object as text."""
        at = datetime.fromtimestamp(record.created, UTC)
        line = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def logging_options(level: str | None = None) -> Callable[[F], F]:
    """Add ``--log-level`` and ``--log-format``.

    `level` is the default. Without one, and with neither option given, nothing is set up: Python
    then shows warnings alone.
    """

    def add(function: F) -> F:
        for option in (_log_format(level), _log_level(level)):
            function = option(function)
        return function

    return add


def _log_level(level: str | None) -> Callable[[F], F]:
    return click.option(
        "--log-level",
        type=click.Choice(LEVELS, case_sensitive=False),
        default=level,
        show_default=level is not None,
        expose_value=False,
        callback=_choose,
        help="Log lines below this level are left out.",
    )


def _log_format(level: str | None) -> Callable[[F], F]:
    return click.option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        default=None if level is None else "text",
        show_default=level is not None,
        expose_value=False,
        callback=_choose,
        help="Log lines as text, or as one JSON object each.",
    )


def _choose(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is None:
        return
    chosen: dict[str | None, str] = ctx.meta.setdefault(_CHOSEN, {})
    chosen[parameter.name] = value
    handler = StderrHandler()
    is_json = chosen.get("log_format") == "json"
    handler.setFormatter(JsonFormatter() if is_json else logging.Formatter(_TEXT))
    root = logging.getLogger()
    root.handlers = [h for h in root.handlers if not isinstance(h, StderrHandler)] + [handler]
    root.setLevel(chosen.get("log_level", "warning").upper())
