"""Write what the blocks of a document print into it: its path, or several."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.documents.blocks import ROOT
from tests.support.documents.running import differences


def write(document: str) -> None:
    """Mend a document."""
    path = ROOT / document
    text = path.read_text()
    with TemporaryDirectory() as folder:
        found = differences(document, Path(folder))
    for block, made in reversed(found):
        text = text[: block.start] + made + text[block.start + len(block.text) :]
        print(f"{block}: written anew")
    path.write_text(text)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        write(name)
