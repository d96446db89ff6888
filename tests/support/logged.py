"""What our own code has logged in the time of a test.

A whole log may have a line of asyncio's about a task of an earlier test, which Python collects
later. So a test that counts lines, or wants none, asks for those of ours.
"""

import logging

import pytest

__all__ = ["said_by"]


def said_by(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """The records of our loggers."""
    return [record for record in caplog.records if record.name.startswith("oncelog")]
