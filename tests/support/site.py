"""What mkdocs needs beyond docs/: pages that stand elsewhere or are made of the code, and links.

mkdocs calls the two functions by name (``hooks`` in mkdocs.yml). Links work in a file viewer as
they are written; here they are turned into those of the site. What has no page in it, as a source
file, is shown as its path.
"""

import posixpath
import re
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from tests.support.reference import api, commands

__all__ = ["on_files", "on_page_markdown"]

ROOT: Final = Path(__file__).resolve().parents[2]
PAGES: Final = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
"""Path in the checkout -> page of the site."""
_LINK: Final = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s]+)(#[^)]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that lie outside of docs/, and those that are made of the code."""
    for page, text in (("api.md", api.document()), ("commands.md", commands.document())):
        files.append(File.generated(config, page, content=text))
    for path, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / path).read_text()))
    for example in sorted((ROOT / "examples").rglob("*.py")):
        path = example.relative_to(ROOT).as_posix()
        page = f"{path.removesuffix('.py')}.md"
        text = f"# {path}\n\n```python\n{example.read_text()}```\n"
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links of the checkout into links of the site."""
    name = page.file.src_uri
    written_at = next((path for path, made in PAGES.items() if made == name), f"docs/{name}")

    def turned(found: re.Match[str]) -> str:
        image, text, target, anchor = found.groups()
        if "://" in target or name.startswith("examples/"):
            return found.group()
        path = posixpath.normpath(posixpath.join(posixpath.dirname(written_at), target))
        at = site_path(path)
        if at is None:
            return text if text.startswith("`") else f"{text} (`{path}`)"
        link = posixpath.relpath(at, posixpath.dirname(name) or ".")
        return f"{image}[{text}]({link}{anchor or ''})"

    return _LINK.sub(turned, markdown)


def site_path(path: str) -> str | None:
    """Where the site shows a file of the checkout; None if it does not."""
    if path in PAGES:
        return PAGES[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path.startswith("examples/") and path.endswith(".py"):
        return path.removesuffix(".py") + ".md"
    return None
