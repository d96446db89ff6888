"""Reading Kafka's `.properties` files, as `java.util.Properties.load` does.

Pure: text in, pairs out. Later lines win over earlier ones of the same key, as in Java.
"""

from __future__ import annotations

from oncelog.core.config_definition import ConfigError

__all__ = ["parse_properties", "parse_setting"]

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANKS = " \t\f"


def parse_setting(text: str) -> tuple[str, str]:
    """A ``KEY=VALUE`` from the command line. Raises `ConfigError`."""
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise ConfigError(f"--set {text}: expected KEY=VALUE")
    return key.strip(), value.strip()


def parse_properties(text: str) -> dict[str, str]:
    """The pairs of a file: comments, continued lines, escapes and all three separators.

    Raises `ConfigError`.
    """
    pairs: dict[str, str] = {}
    for line in _logical_lines(text):
        key, value = _split(line)
        pairs[key] = value
    return pairs


def _logical_lines(text: str) -> list[str]:
    lines: list[str] = []
    continued: str | None = None
    for raw in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        line = raw.lstrip(_BLANKS)
        if continued is None and (not line or line[0] in "#!"):
            continue
        line = line if continued is None else continued + line
        # An odd number of backslashes at the end: the last one is not itself escaped.
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            continued = line[:-1]
        else:
            continued = None
            lines.append(line)
    if continued is not None:
        lines.append(continued)
    return lines


def _split(line: str) -> tuple[str, str]:
    position = 0
    while position < len(line) and line[position] not in "=:" + _BLANKS:
        position += 2 if line[position] == "\\" else 1
    key = line[:position]
    rest = line[position:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return _unescape(key), _unescape(rest)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\" or position == len(text):
            out.append(character)
            continue
        escaped = text[position]
        position += 1
        if escaped == "u":
            digits = text[position : position + 4]
            try:
                out.append(chr(int(digits, 16)))
            except ValueError:
                raise ConfigError(f"malformed \\uxxxx escape: \\u{digits}") from None
            position += 4
        else:
            out.append(_ESCAPES.get(escaped, escaped))
    return "".join(out)
