"""Holds the points of style that no linter knows: length, class names, words to avoid.

Run as ``python -m tests.support.style``; part of ``make check``. A function's docstring is not
counted: no public function should say less than its callers need.
"""

import ast
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from tests.support.words import words_to_avoid

FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60
ROOT = Path(__file__).resolve().parents[2]
BLOCKING = "src/oncelog/client/sync.py"
"""Its classes have the names of the asyncio classes of which they are the blocking form."""


def findings(path: Path) -> list[str]:
    """One line per point that `path` breaks."""
    return findings_in(str(path.relative_to(ROOT)), path.read_text())


def findings_in(name: str, text: str) -> list[str]:
    """The same for a module's text."""
    found = []
    line_count = text.count("\n")
    if line_count > FILE_LINES_MAX:
        found.append(f"{name}: {line_count} lines, at most {FILE_LINES_MAX}")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = line_count_of(node) - docstring_line_count(node)
            if length > FUNCTION_LINES_MAX:
                where = f"{name}:{node.lineno}"
                found.append(
                    f"{where}: {node.name} has {length} lines, at most {FUNCTION_LINES_MAX}"
                )
    return found


def line_count_of(node: ast.stmt) -> int:
    """Lines from the first to the last."""
    return (node.end_lineno or node.lineno) - node.lineno + 1


def docstring_line_count(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of the docstring, 0 without one."""
    return 0 if ast.get_docstring(function) is None else line_count_of(function.body[0])


def repeated_class_names(texts: Mapping[str, str]) -> list[str]:
    """One line per name that top-level classes of two modules have; `texts` by module's path."""
    places = defaultdict(list)
    for path, text in texts.items():
        if path != BLOCKING:
            for node in ast.parse(text).body:
                if isinstance(node, ast.ClassDef):
                    places[node.name].append(f"{path}:{node.lineno}")
    return [
        f"class {name} is there more than once: {', '.join(found)}"
        for name, found in sorted(places.items())
        if len(found) > 1
    ]


def main() -> int:
    """Print every finding; the exit code is 1 when there is one."""
    folders = ("src", "tests", "bench", "examples")
    files = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    found = [finding for path in files for finding in findings(path)]
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in files}
    sources = {path: text for path, text in texts.items() if path.startswith("src/")}
    found += repeated_class_names(sources)
    found += [finding for path, text in sources.items() for finding in words_to_avoid(path, text)]
    print("\n".join(found) or f"style: {len(files)} files, nothing found")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
