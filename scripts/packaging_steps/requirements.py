"""The lowest versions that pyproject.toml allows."""

import re
import tomllib

from packaging_steps.build import ROOT

_LOWER_BOUND = re.compile(r"([A-Za-z0-9._-]+)\s*>=\s*([0-9][0-9A-Za-z.]*)")


def lowest_versions() -> list[str]:
    """Return `name==version` for each dependency. Every dependency must have a lower and an upper bound."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [lowest_version(entry) for entry in project["dependencies"]]


def lowest_version(requirement: str) -> str:
    found = _LOWER_BOUND.match(requirement)
    if found is None or ",<" not in requirement.replace(" ", ""):
        raise SystemExit(f"pyproject.toml: {requirement} needs a lower and an upper bound")
    return f"{found[1]}=={found[2]}"
