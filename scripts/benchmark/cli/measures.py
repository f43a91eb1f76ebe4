"""The rows of this family's table, with the targets (bars)."""

from benchmark.cli.options import CONSUME, PRODUCE, START_UP
from benchmark.measures import Bar, Measure

HALF = Bar(0.5, at_least=True)

MEASURES = (
    Measure("produce a file of lines of 100 B", "records/s", PRODUCE, "records_per_s", HALF),
    Measure("- seconds with start-up", "s", PRODUCE, "seconds"),
    Measure("- CPU of the program", "s", PRODUCE, "client_cpu_s"),
    Measure("consume to /dev/null", "records/s", CONSUME, "records_per_s", HALF),
    Measure("- seconds with start-up", "s", CONSUME, "seconds"),
    Measure("- CPU of the program", "s", CONSUME, "client_cpu_s"),
    Measure("help", "ms", START_UP, "help_ms"),
    Measure("list of topics", "ms", START_UP, "list_ms"),
)
