"""Tables of text with aligned columns."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TextIO
from unicodedata import combining, east_asian_width

from kwire.cli.framework.colours import BOLD, coloured
from kwire.cli.framework.printable import printable

_GAP = "  "


def table_lines(rows: Sequence[Mapping[str, Any]], columns: Iterable[str], stream: TextIO) -> Iterator[str]:
    """Yield the lines of a table, the names of the columns first. Columns of numbers are aligned to the right."""
    names = list(columns)
    cells = [[cell(row[name]) for name in names] for row in rows]
    is_number = [_is_number([row[name] for row in rows if row[name] is not None]) for name in names]
    widths = [max([len(name), *(_width(line[column]) for line in cells)]) for column, name in enumerate(names)]
    yield coloured(_line(names, widths, is_number), BOLD, stream)
    for line in cells:
        yield _line(line, widths, is_number)


def cell(value: Any) -> str:
    """Return a value as one line of text."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(cell, value)) or "-"
    return printable(str(value))


def _width(text: str) -> int:
    """Return the number of columns that a terminal needs for a text: two for each wide character, such as 東 or 🎉."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(one) else 2 if east_asian_width(one) in "WF" else 1 for one in text)


def _is_number(values: Sequence[Any]) -> bool:
    return bool(values) and all(isinstance(one, int | float) and not isinstance(one, bool) for one in values)


def _line(cells: Sequence[str], widths: Sequence[int], is_number: Sequence[bool]) -> str:
    aligned = (
        " " * (width - _width(text)) + text if right else text + " " * (width - _width(text))
        for text, width, right in zip(cells, widths, is_number, strict=True)
    )
    return _GAP.join(aligned).rstrip()
