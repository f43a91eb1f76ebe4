"""ssl.principal.mapping.rules map subjects of certificates as Kafka does."""

import pytest

from kwire.access.principal_rules import SUBJECT_CHARACTERS_MAX, NoMatchingRule, PrincipalRules


def name_of(rules: str, subject: str) -> str:
    principal = PrincipalRules(rules).principal(subject)
    assert principal.type == "User"
    return principal.name


@pytest.mark.parametrize(
    "rules",
    [
        "DEFAULT",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, DEFAULT",
        "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/",
        "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L",
        "RULE:^cn=(.?),ou=(.?),dc=(.?),dc=(.?)$/$1@$2/U",
        "RULE:^CN=([^,ADEFLTU,]+)(,.*|$)/$1/",
        "RULE:^CN=([^,DEFAULT,]+)(,.*|$)/$1/",
    ],
)
def test_rules_that_kafka_accepts_are_accepted(rules: str) -> None:
    assert len(PrincipalRules(rules)) == rules.count("RULE:") + rules.count(", DEFAULT") + (rules == "DEFAULT")


@pytest.mark.parametrize(
    "rules",
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
    ],
)
def test_rules_that_kafka_refuses_are_refused(rules: str) -> None:
    with pytest.raises(ValueError, match="is not valid"):
        PrincipalRules(rules)


@pytest.mark.parametrize("rules", ["RULE:(/x/", "RULE:\\p{Alpha}+/x/", "RULE:.*/$1/", "RULE:.*/$x/"])
def test_rules_that_would_fail_at_the_first_client_are_refused_at_the_start(rules: str) -> None:
    with pytest.raises(ValueError, match="RULE"):
        PrincipalRules(rules)


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        ("cN=duke,OU=JavaSoft,O=Sun Microsystems", "DUKE"),
        ("OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
    ],
)
def test_the_first_rule_that_matches_is_used(subject: str, name: str) -> None:
    rules = ", ".join(
        (
            "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L",
            "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L",
            "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U",
            "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U",
            "DEFAULT",
        )
    )
    assert name_of(rules, subject) == name


@pytest.mark.parametrize(
    ("rules", "count"),
    [
        ("", 0),
        ("RULE://", 1),
        ("RULE:/.*/L", 1),
        ("  RULE:   /     / ,  DEFAULT  ", 2),
        ("  RULE:([A-Z]*)/$1/U   ,RULE:([a-z]+)/$1/,   DEFAULT  ", 3),
        (",   , , ,      , , ,   ", 0),
        (",,RULE://,,,DEFAULT,,", 2),
        ("RULE:\\/\\\\\\(\\)\\n\\t/\\/\\//", 1),
        ("RULE:\\**\\/+/*/L,RULE:\\/*\\**/**/", 2),
        ("RULE:,RULE:,/,RULE:,\\//U,RULE:,/RULE:,/,RULE:,RULE:,/L,RULE:,/L,RULE:, DEFAULT, /DEFAULT/,DEFAULT", 5),
    ],
)
def test_rules_are_split_as_in_kafka(rules: str, count: int) -> None:
    assert len(PrincipalRules(rules)) == count


def test_an_escaped_comma_stays_in_the_name() -> None:
    rules = "RULE:^CN=((\\\\, *|\\w)+)(,.*|$)/$1/,DEFAULT"
    assert name_of(rules, "CN=Tkac\\, Adam,OU=ITZ,DC=geodis,DC=cz") == "Tkac\\, Adam"


@pytest.mark.parametrize(
    ("rule", "name"),
    [
        ("RULE:CN=(\\w+)/$1@$4/", "ab@$4"),
        ("RULE:CN=(\\w)(\\w)/$2$1/", "ba"),
        ("RULE:CN=(\\w)(\\w)/$12/", "a2"),
        ("RULE:CN=(\\w+)/\\$1/", "$1"),
        ("RULE:CN=(?<who>\\w+)/${who}x/", "abx"),
        ("RULE:.*/x/", "xx"),
    ],
)
def test_replacements_follow_java(rule: str, name: str) -> None:
    assert name_of(rule, "CN=ab") == name


def test_a_subject_without_a_rule_or_too_long_has_no_principal() -> None:
    with pytest.raises(NoMatchingRule, match="no rule"):
        PrincipalRules("RULE:^CN=a$/x/").principal("CN=b")
    with pytest.raises(NoMatchingRule, match="characters"):
        PrincipalRules("DEFAULT").principal("CN=" + "a" * SUBJECT_CHARACTERS_MAX)
