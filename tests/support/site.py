"""What mkdocs needs beyond docs/: pages that stand elsewhere or are made of the code, and links.

mkdocs calls the three functions by name (``hooks`` in mkdocs.yml). Links work in a file viewer as
they are written; here they are turned into those of the site. What has no page in it, as a source
file, is shown as its path. Tables get what `docs/site.css` needs to show them on a phone.
"""

import html
import posixpath
import re
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from tests.support.reference import api, commands

__all__ = ["marked_tables", "on_files", "on_page_content", "on_page_markdown"]

ROOT: Final = Path(__file__).resolve().parents[2]
PAGES: Final = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
"""Path in the checkout -> page of the site."""
PROSE_LENGTH_MIN: Final = 40
"""A table with a cell as long as this, behind its first column, is text and not figures."""
NAME_LENGTH_MIN: Final = 16
"""From this length on a name between backticks in a table may be broken, at its dots for one."""
_TABLE: Final = re.compile(r"<table>(.*?)</table>", re.DOTALL)
_CELL: Final = re.compile(r"<(t[hd])( [^>]*)?>(.*?)</\1>", re.DOTALL)
_CODE: Final = re.compile(r"<code>([^<]*)</code>")
_TAG: Final = re.compile(r"<[^>]*>")
_BREAK: Final = re.compile(r"[._/,:](?=\w)|(?<=\w)=(?=\w)")
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


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Mark the tables."""
    return marked_tables(content)


def marked_tables(content: str) -> str:
    """Give each cell its column's name, each table its kind, and long names places to break."""
    return _TABLE.sub(lambda found: _marked_table(found[1]), content)


def _marked_table(inner: str) -> str:
    head, end, body = inner.partition("</thead>")
    names = [_plain(content) for _, _, content in _CELL.findall(head)]
    rows = [_CELL.findall(row) for row in body.split("</tr>")]
    is_prose = any(len(_plain(cell[2])) >= PROSE_LENGTH_MIN for row in rows for cell in row[1:])
    made = [_marked_row(row, names) for row in rows if row]
    kind = "prose" if is_prose else "figures"
    return f'<table data-kind="{kind}">{head}{end}<tbody>{"".join(made)}</tbody></table>'


def _marked_row(cells: list[tuple[str, str, str]], names: list[str]) -> str:
    made = []
    for (tag, attributes, content), name in zip(cells, names, strict=True):
        label = f' data-label="{html.escape(name)}"' if name else ""
        made.append(f"<{tag}{attributes}{label}>{_CODE.sub(_breakable, content)}</{tag}>")
    return f"<tr>{''.join(made)}</tr>"


def _plain(content: str) -> str:
    return html.unescape(_TAG.sub("", content)).strip()


def _breakable(found: re.Match[str]) -> str:
    if len(found[1]) < NAME_LENGTH_MIN:
        return found.group()
    return f"<code>{_BREAK.sub(lambda at: at.group() + '<wbr>', found[1])}</code>"


def site_path(path: str) -> str | None:
    """Where the site shows a file of the checkout; None if it does not."""
    if path in PAGES:
        return PAGES[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path.startswith("examples/") and path.endswith(".py"):
        return path.removesuffix(".py") + ".md"
    return None
