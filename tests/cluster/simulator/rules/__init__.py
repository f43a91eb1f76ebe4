"""The invariants of the Stream Engine: one function for each, named by its number."""


class Violation(AssertionError):
    """An invariant does not hold."""


def check(condition: bool, number: str, message: str) -> None:
    if not condition:
        raise Violation(f"{number}: {message}")
