"""What keeps a checkout from being released, and what an sdist or a wheel lacks."""

import io
import re
import subprocess
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from mkdocs.utils.yaml import yaml_load
from rich.console import Console

import oncelog
import setup
from tests.support import release
from tests.support.fresh_python import StepFailed
from tests.support.install_size import ROOT
from tests.support.reproducible import pack_again

LINK = re.compile(r"!?\[([^\]]+)\]\([^)]+\)")
FILES = {
    "CHANGELOG.md": "# Changelog\n\n## 1.2.3 (2026-11-22)\n\n- all\n",
    "CITATION.cff": "title: Oncelog\nversion: 1.2.3\n",
    "src/oncelog/__init__.py": "",
    ".gitignore": "ignored\n",
}


def git(root: Path, *words: str) -> None:
    who = ("-c", "user.name=n", "-c", "user.email=e@example")
    subprocess.run(["git", *who, *words], cwd=root, check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Ready for 1.2.3."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "all")
    return tmp_path


def test_the_page_of_an_index_links_nowhere_into_the_checkout() -> None:
    page, readme = setup.long_description(), (ROOT / "README.md").read_text()
    assert setup.LINK_INTO_THE_CHECKOUT.search(readme)
    assert "](docs/" not in page
    assert page.splitlines()[0] == "# Oncelog"
    assert len(page.splitlines()) == len(readme.splitlines())
    assert LINK.sub(r"\1", page) == LINK.sub(r"\1", readme)


def test_a_checkout_that_is_ready_has_no_findings(checkout: Path) -> None:
    assert release.tree_findings(checkout) == []
    assert release.version_findings(checkout, "1.2.3") == []


def test_what_is_not_committed_is_named(checkout: Path) -> None:
    (checkout / "stray").touch()
    (finding,) = release.tree_findings(checkout)
    assert "stray" in finding


@pytest.mark.parametrize(
    ("name", "text", "finding"),
    [
        ("CHANGELOG.md", "## 1.2.3 (unreleased)\n", "CHANGELOG.md says 1.2.3 is unreleased"),
        ("CHANGELOG.md", "## 1.2.2 (2026-11-22)\n", 'CHANGELOG.md begins with "## 1.2.2 (2026'),
        ("CHANGELOG.md", "nothing\n", 'CHANGELOG.md begins with "no heading"'),
        ("CITATION.cff", "version: 1.2.2\n", "CITATION.cff does not cite 1.2.3"),
    ],
)
def test_a_file_that_tells_another_version_is_named(
    checkout: Path, name: str, text: str, finding: str
) -> None:
    (checkout / name).write_text(text)
    (found,) = release.version_findings(checkout, "1.2.3")
    assert found.startswith(finding)


def test_a_version_that_is_tagged_is_not_released_again(checkout: Path) -> None:
    git(checkout, "tag", "v1.2.3")
    assert release.version_findings(checkout, "1.2.3") == [
        "v1.2.3 is tagged already: raise the version"
    ]


@pytest.mark.parametrize(
    ("urls", "count"), [("", 1), ('[project.urls]\nHomepage = "https://oncelog.example"\n', 0)]
)
def test_a_wheel_that_names_no_address_is_not_released(
    checkout: Path, urls: str, count: int
) -> None:
    (checkout / "pyproject.toml").write_text(f'[project]\nname = "oncelog"\n{urls}')
    assert len(release.address_findings(checkout)) == count


@pytest.mark.parametrize("version", ["1.2", "1.2.3.dev1", "1.2.3+local"])
def test_a_version_that_no_index_takes_is_refused(checkout: Path, version: str) -> None:
    assert f"{version} is no version of a release" in release.version_findings(checkout, version)[0]


def test_this_checkout_tells_its_version_everywhere() -> None:
    allowed = f"CHANGELOG.md says {oncelog.__version__} is unreleased"
    found = release.version_findings(ROOT, oncelog.__version__)
    assert [one for one in found if not one.startswith(allowed)] == []


def test_a_finding_ends_it_before_anything_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "tree_findings", lambda _: ["stray is not committed"])
    said = io.StringIO()
    with pytest.raises(StepFailed, match="nothing was built; --rehearse goes on"):
        release.release(Console(file=said), rehearse=False)
    assert "not yet: stray is not committed" in said.getvalue()


def archives(folder: Path, sdist: Mapping[str, str], wheel: Mapping[str, str]) -> tuple[Path, Path]:
    with tarfile.open(folder / "it.tar.gz", "w:gz") as tar:
        for name, text in sdist.items():
            entry = tarfile.TarInfo(f"oncelog-1.2.3/{name}")
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    with zipfile.ZipFile(folder / "it.whl", "w") as made:
        for name, text in wheel.items():
            made.writestr(name, text)
    return folder / "it.tar.gz", folder / "it.whl"


def test_what_an_sdist_lacks_and_a_wheel_has_too_much_is_found(
    checkout: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    sdist, wheel = archives(
        tmp_path_factory.mktemp("dist"),
        {"CHANGELOG.md": "", "src/oncelog/__init__.py": ""},
        {
            "oncelog/__init__.py": "",
            "oncelog/stray.py": "",
            "oncelog-1.2.3.dist-info/METADATA": "",
        },
    )
    assert release.missing_in_sdist(checkout, sdist) == {"CITATION.cff"}
    assert release.strangers_in_wheel(checkout, wheel) == {"oncelog/stray.py"}


def test_an_archive_packed_again_depends_on_its_files_alone(tmp_path: Path) -> None:
    made = []
    for order, (time_s, owner, mode) in {1: (1000, "me", 0o664), -1: (2000, "you", 0o600)}.items():
        made.append(tmp_path / f"{owner}.tar.gz")
        with tarfile.open(made[-1], "w:gz") as tar:
            for name in ("a/one", "a/two")[::order]:
                entry = tarfile.TarInfo(name)
                entry.size, entry.mtime, entry.uname, entry.mode = 3, time_s, owner, mode
                tar.addfile(entry, io.BytesIO(b"abc"))
        pack_again(made[-1], 1234)
    assert made[0].read_bytes() == made[1].read_bytes()
    with tarfile.open(made[0]) as tar:
        entries = [(entry.name, entry.mtime, entry.mode) for entry in tar]
        assert entries == [("a/one", 1234, 0o644), ("a/two", 1234, 0o644)]
        assert tar.extractfile("a/two").read() == b"abc"  # type: ignore[union-attr]


def test_a_build_whose_bytes_differ_is_no_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [tmp_path / name for name in ("first", "second")]
    for file in files:
        file.write_text(file.name)
    monkeypatch.setattr(release, "build", lambda *_: (files[0], files[0]))
    with pytest.raises(StepFailed, match="second was built twice, and its bytes differ"):
        release.check_built_again(tmp_path, tmp_path, *files)


def test_the_manifest_names_all_that_git_knows() -> None:
    """The short form of what `make release` finds in a real sdist."""
    manifest = (ROOT / "MANIFEST.in").read_text().split()
    given = {"MANIFEST.in", "pyproject.toml", "setup.py", "src"}  # By setuptools itself.
    parts = {name.partition("/")[0] for name in release.tracked(ROOT)}
    assert {part for part in parts if not part.startswith(".")} - given <= set(manifest)


def test_the_citation_has_what_its_format_demands() -> None:
    cited = yaml_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors", "version", "license"} <= cited.keys()


@pytest.mark.parametrize("form", ["defect", "difference"])
def test_an_issue_form_is_one_that_the_hosting_can_show(form: str) -> None:
    """Else nobody is told: the form is just not offered."""
    path = ROOT / ".github" / "ISSUE_TEMPLATE" / f"{form}.yml"
    asked = yaml_load(path.read_text())
    assert {"name", "description", "body"} <= asked.keys()
    for field in asked["body"]:
        assert field["type"] in {"textarea", "input", "dropdown", "markdown", "checkboxes"}
        assert field["attributes"]["label"]


def test_the_security_policy_is_part_of_the_sdist() -> None:
    """Who has only the sdist finds out how to report a vulnerability, too."""
    assert "SECURITY.md" in (ROOT / "MANIFEST.in").read_text().split()
    assert "Report a vulnerability" in (ROOT / "SECURITY.md").read_text()
