"""Makes the page of a package index from README.md; all else stands in pyproject.toml."""

import re
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).resolve().parent
LINK_INTO_THE_CHECKOUT = re.compile(r"!?\[([^\]]+)\]\((?!https?:|#)[^)]+\)")


def long_description() -> str:
    """README.md for a package index, where a link into the checkout would lead nowhere."""
    return LINK_INTO_THE_CHECKOUT.sub(r"\1", (ROOT / "README.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    setup(
        long_description=long_description(),
        long_description_content_type="text/markdown",
    )
