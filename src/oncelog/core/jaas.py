"""``sasl.jaas.config``: the one line of Java's login configuration that everybody copies.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";

A login module is known by the last part of its class name: vendors put their own packages in front.
"""

import re
from dataclasses import dataclass, field
from typing import Final

from oncelog.core.config_definition import ConfigError

__all__ = ["Login", "parse_jaas"]

_LINE: Final = re.compile(
    r"\s*(?P<module>[\w.$]+)\s+(?:required|requisite|sufficient|optional)(?P<options>.*);\s*",
    re.DOTALL | re.IGNORECASE,
)
_OPTION: Final = re.compile(
    r"""\s+(?P<name>[\w.\-]+)\s*=\s*(?:"(?P<text>(?:\\.|[^"\\])*)"|(?P<word>[^\s;"]+))""",
    re.DOTALL,
)
_MODULES: Final = {
    "PlainLoginModule": ("PLAIN",),
    "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "OAuthBearerLoginModule": ("OAUTHBEARER",),
}


@dataclass(frozen=True, slots=True)
class Login:
    """The options of a login module; some are secret, so none are shown."""

    options: dict[str, str] = field(default_factory=dict, repr=False)


def parse_jaas(text: str, mechanism: str) -> Login:
    """Parse the line. Raises `ConfigError`, which shows only the module's name."""
    line = _LINE.fullmatch(text)
    if line is None:
        raise ConfigError(
            'sasl.jaas.config must be like: ...PlainLoginModule required username="..." '
            'password="...";'
        )
    module = line["module"].rpartition(".")[2]
    if mechanism not in _MODULES.get(module, ()):
        raise ConfigError(f"sasl.jaas.config names {module}, which is not for {mechanism}")
    options, position = {}, 0
    while found := _OPTION.match(line["options"], position):
        quoted = found["text"]
        value = (
            found["word"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)
        )
        options[found["name"]], position = value, found.end()
    if line["options"][position:].strip():
        raise ConfigError('the options in sasl.jaas.config must be like name="value"')
    return Login(options)
