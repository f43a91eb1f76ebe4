"""The rules that map the subject of a client certificate to a principal (`ssl.principal.mapping.rules`).

The syntax is Kafka's: `DEFAULT`, or `RULE:pattern/replacement/` followed by `L` or `U`, separated by commas. The first
rule whose pattern matches the whole subject is used. In the replacement, `$1` is the first group. A reference to a
group that the pattern does not have is literal text. Patterns are Python's regular expressions with ASCII classes,
which agree with Java's except for Java's own classes such as `\\p{Alpha}`; those are refused when the rules are read.

A pattern with nested repetitions can take time that grows fast with the subject. The patterns are the operator's, and
the subject has at most SUBJECT_CHARACTERS_MAX characters.
"""

import re
from typing import Any, NamedTuple

from kwire.access.principal import USER, Principal

SUBJECT_CHARACTERS_MAX = 1024
# The name under which a TLS transport returns the principal of the client's certificate.
PRINCIPAL_INFO = "kwire.certificate_principal"

_RULE = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_RULE_SPLITTER = re.compile(rf"\s*({_RULE})\s*(,\s*|\Z)", re.ASCII)
_RULE_PARSER = re.compile(_RULE, re.ASCII)
_NAMED_GROUP = re.compile(r"\(\?<(?=[A-Za-z])")
_REPLACEMENT_PART = re.compile(r"\\(?P<escaped>.)|\$(?P<digits>[0-9]+)|\$\{(?P<name>[A-Za-z][A-Za-z0-9]*)\}", re.DOTALL)


class NoMatchingRule(ValueError):
    """No rule matches the subject of a certificate. Its connection is closed, as in Kafka."""


class _Rule(NamedTuple):
    """One rule. The rule DEFAULT has no pattern."""

    pattern: re.Pattern[str] | None
    parts: tuple[str | int, ...]
    case: str

    def apply(self, subject: str) -> str | None:
        if self.pattern is None:
            return subject
        if self.pattern.fullmatch(subject) is None:
            return None
        # As in Kafka, every match in the subject is replaced, not only the match of the whole.
        result = self.pattern.sub(self._expand, subject)
        return result.lower() if self.case == "L" else result.upper() if self.case == "U" else result

    def _expand(self, match: re.Match[str]) -> str:
        return "".join(part if isinstance(part, str) else match[part] or "" for part in self.parts)


class PrincipalRules:
    """Maps subjects to names. The constructor raises ValueError for rules that are not valid."""

    def __init__(self, text: str) -> None:
        self._rules: list[_Rule] = []
        for split in _RULE_SPLITTER.finditer(text.strip()):
            rule = _parse_rule(split[1])
            if rule is not None:
                self._rules.append(rule)

    def __len__(self) -> int:
        return len(self._rules)

    def principal(self, subject: str) -> Principal:
        """Return the principal of a subject. Raises NoMatchingRule."""
        if len(subject) > SUBJECT_CHARACTERS_MAX:
            raise NoMatchingRule(f"the subject has more than {SUBJECT_CHARACTERS_MAX} characters")
        for rule in self._rules:
            name = rule.apply(subject)
            if name is not None:
                return Principal(USER, name)
        raise NoMatchingRule(f"no rule of ssl.principal.mapping.rules matches the subject {subject}")


def certificate_principal(transport: Any) -> Principal | None:
    """Return the principal of the client certificate of a connection, or None if the client has not sent one."""
    principal: Principal | None = transport.get_extra_info(PRINCIPAL_INFO)
    return principal


def _parse_rule(text: str) -> _Rule | None:
    match = _RULE_PARSER.match(text)
    assert match is not None, "the last alternative matches the empty string"
    if match.end() != len(text):
        raise ValueError(f"the rule {text!r} is not valid after {text[: match.end()]!r}; expected DEFAULT or RULE:…/…/")
    if match[1] is not None:
        return _Rule(None, (), "")
    if match[2] is None:
        return None
    try:
        pattern = re.compile(_NAMED_GROUP.sub("(?P<", match[2]), re.ASCII)
    except re.error as error:
        raise ValueError(f"the pattern of the rule {text!r} is not valid: {error}") from None
    return _Rule(pattern, tuple(_replacement_parts(match[3], pattern, text)), match[4])


def _replacement_parts(replacement: str, pattern: re.Pattern[str], rule: str) -> list[str | int]:
    """Return literal texts and numbers of groups."""
    parts: list[str | int] = []
    position = 0
    for found in _REPLACEMENT_PART.finditer(replacement):
        literal = replacement[position : found.start()]
        _check_literal(literal, rule)
        parts.append(literal)
        position = found.end()
        if found["escaped"] is not None:
            parts.append(found["escaped"])
        elif found["name"] is not None:
            if found["name"] not in pattern.groupindex:
                raise ValueError(f"the rule {rule!r} refers to {found[0]}, but its pattern has no such group")
            parts.append(pattern.groupindex[found["name"]])
        else:
            parts += _numbered_group(found["digits"], pattern.groups, rule)
    _check_literal(replacement[position:], rule)
    return [*parts, replacement[position:]]


def _check_literal(text: str, rule: str) -> None:
    if "$" in text:
        raise ValueError(f"the rule {rule!r} has a $ without a group; write \\$ for the character")


def _numbered_group(digits: str, groups: int, rule: str) -> list[str | int]:
    """Return the group of `$digits`. Java takes as many digits as give a group that exists."""
    if groups == 0 and digits[0] != "0":
        raise ValueError(f"the rule {rule!r} refers to ${digits}, but its pattern has no groups")
    length = 1
    while length < len(digits) and int(digits[: length + 1]) <= groups:
        length += 1
    number = int(digits[:length])
    return [number, digits[length:]] if number <= groups else [f"${digits}"]
