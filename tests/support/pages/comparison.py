"""Compares what a command printed with what its page says."""

import re

# Values that differ from run to run, and what stands for them.
_VARYING = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)"), "TIME"),
    (re.compile(r"evt_[0-9a-f]+-[0-9a-f]+"), "EVENT-ID"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "UUID"),
    (re.compile(r'(?<="epoch":)"[\w-]{22}"'), "EPOCH"),
    (re.compile(r"\bsub_\d+"), "SUBSCRIPTION"),
    (re.compile(r'(?<="timestamp":)\d+'), "TIME"),
    (re.compile(r'(?<=_bytes":)\d+'), "BYTES"),
    (re.compile(r'(?<="last_rebalance_secs":)\d+'), "SECONDS"),
    (re.compile(r"\bkws-\w{11}\b"), "SCOPE"),
)
ANYTHING = "…"


def masked(text: str) -> str:
    for pattern, name in _VARYING:
        text = pattern.sub(name, text)
    return text.rstrip()


def is_like(expected: str, line: str) -> bool:
    """Whether a whole line is as expected."""
    return re.fullmatch(_pattern(expected), masked(line)) is not None


def missing_lines(expected: list[str], output: str) -> list[str]:
    """The expected lines that are in no line of the output."""
    lines = [masked(line) for line in output.splitlines()]
    return [one for one in expected if not any(re.search(_pattern(one), line) for line in lines)]


def _pattern(expected: str) -> str:
    return ".*".join(re.escape(part) for part in masked(expected).split(ANYTHING))
