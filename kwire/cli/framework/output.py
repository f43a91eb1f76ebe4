"""The output of verbs that print data: -o table, wide, json or yaml.

Tables are for people: `wide` has more columns. JSON and YAML have all fields. JSON is one line per object, indented on
a terminal, so that a program can read it line by line.
"""

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kwire.cli.framework.tables import table_lines

TABLE, WIDE, JSON, YAML = "table", "wide", "json", "yaml"
FORMATS = (TABLE, WIDE, JSON, YAML)


def add_output(parser: argparse.ArgumentParser) -> None:
    """Declare -o, and --json, which is an older name of -o json."""
    group = parser.add_argument_group("output")
    group.add_argument(
        "-o", "--output", metavar="FORMAT", choices=FORMATS, default=TABLE, help="table, wide, json or yaml (table)"
    )
    group.add_argument("--json", dest="output", action="store_const", const=JSON, help=argparse.SUPPRESS)


def is_data(options: argparse.Namespace) -> bool:
    """Return whether the output is for programs: JSON or YAML."""
    return options.output in (JSON, YAML)


def print_rows(
    rows: Sequence[dict[str, Any]], columns: Iterable[str], options: argparse.Namespace, wide: Iterable[str] = ()
) -> None:
    """Print rows as a table, or as one array with all their fields. `wide` are columns that only -o wide has."""
    if is_data(options):
        print_data(list(rows), options)
        return
    shown = (*columns, *wide) if options.output == WIDE else tuple(columns)
    for line in table_lines(rows, shown, sys.stdout):
        print(line)


def print_object(value: Any, options: argparse.Namespace, print_text: Callable[[], None]) -> None:
    """Print one object as JSON or YAML, or call `print_text`, which prints it for people."""
    if is_data(options):
        print_data(value, options)
    else:
        print_text()


def print_done(done: str, names: Sequence[str], options: argparse.Namespace) -> None:
    """Print what was done with which things: `created orders`, or {"created": ["orders"]}."""
    if is_data(options):
        print_data({done: list(names)}, options)
        return
    for name in names:
        print(f"{done} {name}")


def print_data(value: Any, options: argparse.Namespace) -> None:
    """Print a value as JSON or YAML. Several objects are documents of YAML. JSON is indented on a terminal."""
    if options.output == YAML:
        _print_yaml(value)
    else:
        print(json_text(value, indent=2 if sys.stdout.isatty() else None), flush=True)


def print_line(value: Any, options: argparse.Namespace, default: Callable[[Any], Any] | None = None) -> None:
    """Print one object of many, as a line of JSON or a document of YAML. `default` is that of `json.dumps`."""
    text = json_line(value, default)
    if options.output == YAML:
        import json

        _print_yaml(json.loads(text))
    else:
        print(text)


def json_line(value: Any, default: Callable[[Any], Any] | None = None) -> str:
    """Return a value as one line of JSON without spaces, as all verbs print streams of objects."""
    return json_text(value, default=default, separators=(",", ":"))


def json_text(
    value: Any,
    *,
    indent: int | None = None,
    default: Callable[[Any], Any] | None = None,
    separators: tuple[str, str] | None = None,
) -> str:
    """Return a value as JSON for people: letters of all languages as they are, control characters escaped.

    `json.dumps` leaves some of these unescaped: U+009B, for example, is a command for terminals.
    """
    # Imported here, because tables do not need it.
    import json

    text = json.dumps(value, ensure_ascii=False, indent=indent, default=default, separators=separators)
    if text.isprintable():
        return text
    # The line breaks are those of the indentation.
    return "".join(one if one.isprintable() or one == "\n" else json.dumps(one)[1:-1] for one in text)


def _print_yaml(value: Any) -> None:
    # Imported here, because the import takes longer than most commands run.
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text = yaml.dump(
        value,
        Dumper=dumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=False,
        explicit_start=not isinstance(value, list),
    )
    print(text, end="", flush=True)
