"""Makes a user's name of a certificate's distinguished name, by `ssl.principal.mapping.rules`.

As Kafka's `SslPrincipalMapper` (KIP-371): a rule is ``DEFAULT`` or
``RULE:pattern/replacement/[LU]``; the first whose pattern matches the whole name gives the user.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from oncelog.core.config_definition import ConfigError

__all__ = ["ANONYMOUS", "PrincipalRules"]

ANONYMOUS: Final = "ANONYMOUS"
"""The user of a connection that did not authenticate."""

_KEY: Final = "ssl.principal.mapping.rules"
_RULE: Final = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER: Final = re.compile(rf"\s*({_RULE})\s*(?:,\s*|$)")
_PARSER: Final = re.compile(_RULE)
_REFERENCE: Final = re.compile(r"\\(.)|\$(\d+)", re.DOTALL)


class _Rule(NamedTuple):
    """One rule; without a pattern the name stays as it is."""

    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        made = self.pattern.sub(self._replaced, name)
        return made.lower() if self.case == "L" else made.upper() if self.case == "U" else made

    def _replaced(self, match: re.Match[str]) -> str:
        """Fill in the groups, written ``$1`` as in Java; those that are not there stay as text."""

        def fill(found: re.Match[str]) -> str:
            escaped, digits = found.groups()
            if escaped is not None:
                return str(escaped)
            for end in range(len(digits), 0, -1):
                if int(digits[:end]) <= len(match.groups()):
                    return (match.group(int(digits[:end])) or "") + str(digits[end:])
            return str(found.group())

        return _REFERENCE.sub(fill, self.replacement)


class PrincipalRules:
    """The rules of a listener. Raises `ConfigError` for a text that is none."""

    def __init__(self, text: str = "DEFAULT") -> None:
        entries = [match[1] for match in _SPLITTER.finditer(text.strip())]
        self._rules = tuple(_parsed(entry) for entry in entries if entry)

    def name_of(self, distinguished_name: str) -> str | None:
        """Return the user that a certificate's name stands for; None if no rule applies."""
        for rule in self._rules:
            if (name := rule.apply(distinguished_name)) is not None:
                return name
        return None


def _parsed(entry: str) -> _Rule:
    match = _PARSER.match(entry)
    if match is None or match.end() != len(entry):
        rest = entry if match is None else entry[match.end() :]
        raise ConfigError(f"{_KEY}: Invalid rule: `{entry}`, unmatched substring: `{rest}`")
    is_default, pattern, replacement, case, _ = match.groups()
    if is_default:
        return _Rule()
    try:
        return _Rule(re.compile(pattern, re.ASCII), replacement, case)
    except re.error as error:
        raise ConfigError(f"{_KEY}: Invalid rule: `{entry}`: {error}") from None
