"""Carries out the code blocks of README.md and docs/, and compares what they print.

Run as ``python -m tests.support.documents docs/cli.md``: the outputs that differ are written anew
into the document. ``tests/e2e/test_documents.py`` holds all documents to it. What each kind of
block has to do, by the language tag behind its fence:

| | |
|---|---|
| `python` | runs, with `servers` as the address of a broker; a `text` block behind: its output |
| `console` | each line behind `$` runs as at a terminal and prints the lines below it |
| `sh` | each line runs |
| `properties` | is accepted by a broker |
| `yaml`, `pyi` | is read |

Any other block, and one that cannot run here, stands in `listed.toml` with the test that runs it or
the reason why none does.
"""
