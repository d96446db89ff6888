"""The base install stays small, and each large library is worth its size."""

import re
from importlib.metadata import metadata

from tests.support.install_size import (
    BASE_BYTES_MAX,
    JUSTIFIED_FROM_BYTES,
    ROOT,
    base_requirements,
    folder_bytes,
    library_bytes,
)


def test_the_base_install_is_within_its_bound() -> None:
    sizes = {name: library_bytes(name) for name in base_requirements()}
    sizes["oncelog"] = folder_bytes(ROOT / "src" / "oncelog")
    assert {"uvloop", "cramjam", "fastcrc", "click", "rich", "pygments"} <= sizes.keys()
    assert sum(sizes.values()) <= BASE_BYTES_MAX, sizes


def test_each_large_library_is_justified_in_the_architecture() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    table = text.split("## Libraries, and why each is there")[1].split("\n## ")[0]
    large = {n for n in base_requirements() if library_bytes(n) >= JUSTIFIED_FROM_BYTES}
    assert {name for name in large if name not in table} == set()


def test_no_library_of_the_base_install_has_a_copyleft_license() -> None:
    """README says so."""
    for name in base_requirements():
        told = metadata(name)
        fields = ("License", "License-Expression", "Classifier")
        lines = [line for field in fields for line in told.get_all(field) or []]
        licenses = [line for line in lines if "License" in line or "::" not in line]
        assert licenses, name
        assert not re.search(r"\bL?GPL|General Public|MPL", " ".join(licenses)), name
