"""The settings that users write as KEY=VALUE."""

import argparse
from collections.abc import Iterable

from kwire.cli.framework.errors import UsageError


def add_config(parser: argparse.ArgumentParser, what: str, *, is_required: bool = False) -> None:
    """Declare --config KEY=VALUE, which `assignments_of` reads."""
    parser.add_argument(
        "--config",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        required=is_required,
        help=f"{what}; repeatable",
    )


def assignments_of(texts: Iterable[str], option: str = "--config") -> dict[str, str]:
    """Return the values by name. Raises UsageError."""
    settings = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"{option} takes KEY=VALUE, not {text!r}")
        settings[name] = value
    return settings
