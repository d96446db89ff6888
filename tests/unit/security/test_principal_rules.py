"""Rules for the names of certificates, after Apache's SslPrincipalMapperTest."""

from __future__ import annotations

import pytest

from oncelog.core.config_definition import ConfigError
from oncelog.security.principal_rules import PrincipalRules


@pytest.mark.parametrize(
    "text",
    [
        "DEFAULT",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, DEFAULT",
        "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/",
        "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L",
        "RULE:^cn=(.?),ou=(.?),dc=(.?),dc=(.?)$/$1@$2/U",
        "RULE:^CN=([^,ADEFLTU,]+)(,.*|$)/$1/",
        "RULE:^CN=([^,DEFAULT,]+)(,.*|$)/$1/",
        "",
        ",   , , ,      , , ,   ",
        ",,RULE://,,,DEFAULT,,",
        r"RULE:\/\\\(\)\n\t/\/\//",
    ],
)
def test_rules_are_taken(text: str) -> None:
    PrincipalRules(text)


@pytest.mark.parametrize(
    "text",
    [
        "default",
        "DEFAUL",
        "DEFAULT/L",
        "DEFAULT/U",
        "RULE:CN=(.*?),OU=ServiceUsers.*/$1",
        "rule:^CN=(.*?),OU=ServiceUsers.*$/$1/",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L/U",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/L",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/U",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/LU",
        "RULE:^CN=(.*/$1/",
    ],
)
def test_what_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules: Invalid rule: `"):
        PrincipalRules(text)


RULES = ", ".join(
    [
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L",
        "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L",
        "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U",
        "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U",
        "DEFAULT",
    ]
)


@pytest.mark.parametrize(
    ("rules", "name", "user"),
    [
        (RULES, "CN=Duke,OU=ServiceUsers,O=Org,C=US", "duke"),
        (RULES, "CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        (RULES, "cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        (RULES, "cN=duke,OU=JavaSoft,O=Sun Microsystems", "DUKE"),
        (RULES, "OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
        (
            r"RULE:^CN=((\\, *|\w)+)(,.*|$)/$1/,DEFAULT",
            r"CN=Tkac\, Adam,OU=ITZ,DC=geodis,DC=cz",
            r"Tkac\, Adam",
        ),
        ("RULE:^CN=(.*?),OU=Service.*$/$1/", "CN=a,OU=Other", None),
        ("", "CN=a", None),
        # A group that is not there is text, as is what a backslash stands before.
        ("RULE:^CN=(.*)$/$2-$1-$12-\\$1-$0/", "CN=a", "$2-a-a2-$1-CN=a"),
    ],
)
def test_the_first_rule_that_matches_names_the_user(
    rules: str, name: str, user: str | None
) -> None:
    assert PrincipalRules(rules).name_of(name) == user
