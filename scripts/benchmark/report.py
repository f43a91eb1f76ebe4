"""Computes the rows of the report (medians, ratios, targets met or not), and formats them as Markdown and JSON."""

import json
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass

from benchmark import options
from benchmark.measures import CPU, Measure
from benchmark.samples import WARM_UP_ROUND, Sample
from benchmark.servers import KAFKA, KWIRE

GENERATOR_BUSY_SHARE = 0.9


@dataclass(frozen=True)
class Row:
    title: str
    unit: str
    beside: float | None
    kwire: float | None
    ratio: float | None
    bar: str
    met: bool | None


def rows(
    samples: Sequence[Sample],
    measures: Sequence[Measure],
    worst: Sequence[Measure] = (),
    beside: str = KAFKA,
    fixed: Sequence[str] = (),
    own: str = KWIRE,
) -> list[Row]:
    """Return rows with the medians of `measures`, and with the worst values of `worst` in all works and the warm-up.

    `own` is compared with `beside`. `fixed` are the works of a fixed size, which are the same for both servers, so that
    their CPU times can be added.
    """
    measured = [sample for sample in samples if sample.round != WARM_UP_ROUND]
    worked = {sample.work for sample in measured}
    chosen = [measure for measure in measures if measure.work in worked]
    table = [_row(measure, beside, _median_of(measured, measure), own) for measure in chosen]
    cpu_ratios = [row.ratio for measure, row in zip(chosen, table, strict=True) if measure.bar is CPU and row.ratio]
    if len(cpu_ratios) > 1:
        table.append(_mean_row(cpu_ratios))
    together = [work for work in fixed if work in worked]
    if len(together) > 1:
        table.append(_total_row(measured, together, beside))
    return table + [_row(measure, beside, _worst_of(samples, measure)) for measure in worst]


def _mean_row(cpu_ratios: Sequence[float]) -> Row:
    """Return a row with the mean of the ratios. The figures themselves have different units."""
    mean = statistics.geometric_mean(cpu_ratios)
    return Row(
        f"server CPU, geometric mean of {len(cpu_ratios)} works", "", None, None, mean, str(CPU), CPU.is_met(mean)
    )


def _total_row(samples: Sequence[Sample], works: Sequence[str], beside: str) -> Row:
    def total(server: str) -> float:
        return sum(statistics.median(_values(samples, server, "cpu_s", work) or [0.0]) for work in works)

    other, kwire = total(beside), total(KWIRE)
    ratio = kwire / other if kwire and other else None
    met = CPU.is_met(ratio) if ratio is not None else None
    return Row(f"server CPU, {len(works)} works of fixed size together", "s", other, kwire, ratio, str(CPU), met)


def _row(measure: Measure, beside: str, figure: Callable[[str], float | None], own: str = KWIRE) -> Row:
    other, kwire = figure(measure.beside or beside), figure(own)
    ratio = kwire / other if measure.is_compared and kwire is not None and other else None
    judged = kwire if measure.bar and measure.bar.absolute else ratio
    met = measure.bar.is_met(judged) if measure.bar and judged is not None else None
    return Row(measure.title, measure.unit, other, kwire, ratio, str(measure.bar or ""), met)


def _median_of(samples: Sequence[Sample], measure: Measure) -> Callable[[str], float | None]:
    def median(server: str) -> float | None:
        values = _values(samples, server, measure.figure, measure.work_of(server))
        return statistics.median(values) if values else None

    return median


def _worst_of(samples: Sequence[Sample], measure: Measure) -> Callable[[str], float | None]:
    def worst(server: str) -> float | None:
        values = _values(samples, server, measure.figure)
        if not values:
            return None
        return sum(values) if measure.figure == "stalls" else max(values)

    return worst


def _values(samples: Iterable[Sample], server: str, figure: str, work: str | None = None) -> list[float]:
    chosen = (sample for sample in samples if sample.server == server and work in (None, sample.work))
    return [sample.figures[figure] for sample in chosen if figure in sample.figures]


def table(table_rows: Sequence[Row], beside: tuple[str, str] = ("Apache Kafka", "Kafka"), own: str = "kwire") -> str:
    """Return the Markdown table. `beside` is the long and the short title of the other server."""
    columns = ("measure", "unit", beside[0], own, f"{own} / {beside[1]}", "bar", "met")
    cells = [columns, *(_cells(row) for row in table_rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(columns))]
    header, *body = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in cells
    ]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([header, rule, *body])


def _cells(row: Row) -> tuple[str, ...]:
    ratio = "-" if row.ratio is None else f"{row.ratio:.2f}x"
    met = {True: "yes", False: "NO", None: ""}[row.met]
    return (row.title, row.unit, format_figure(row.beside), format_figure(row.kwire), ratio, row.bar, met)


def format_figure(value: float | None) -> str:
    """Three significant digits below a hundred, whole numbers above."""
    if value is None:
        return "-"
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def notes(samples: Sequence[Sample]) -> list[str]:
    """Return warnings about the table: failed works, and load generators that may have been the bottleneck."""
    found = [_failure(sample, sample.error) for sample in samples if sample.error]
    for server in (KAFKA, KWIRE):
        busy = _values(samples, server, "generator_busy_share", options.SMALL_REQUESTS)
        if busy and max(busy) > GENERATOR_BUSY_SHARE:
            found.append(
                f"small requests on {server}: the load generator was {max(busy):.0%} busy and may be the limit"
            )
    return found


def _failure(sample: Sample, error: str) -> str:
    return f"failed: {sample.work} on {sample.server}, round {sample.round}: {error.splitlines()[0]}"


def document(
    machine: dict[str, object], given: dict[str, object], samples: Sequence[Sample], table_rows: Sequence[Row]
) -> str:
    content = {
        "machine": machine,
        "options": given,
        "table": [asdict(row) for row in table_rows],
        "notes": notes(samples),
        "samples": [asdict(sample) for sample in samples],
    }
    return json.dumps(content, indent=1, default=str) + "\n"
