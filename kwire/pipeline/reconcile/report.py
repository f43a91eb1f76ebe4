"""The report of a comparison, as text or as lines of JSON. It is not held in memory, so it may be long."""

import json
from collections import Counter
from datetime import datetime, timedelta
from typing import TextIO

from kwire.pipeline.reconcile.comparison import BEHIND, KINDS, Difference, Hour

# The maximum number of differences that are printed. Further differences are only counted. The report file has all of
# them.
SHOWN_MAX = 100


class Report:
    """The report of one topic and its table. Every hour and difference is also written to `everything`, as JSON."""

    def __init__(self, topic: str, table: str, out: TextIO, everything: TextIO | None, *, is_json: bool) -> None:
        self._topic = topic
        self._table = table
        self._out = out
        self._everything = everything
        self._is_json = is_json
        self.counts: Counter[str] = Counter()
        self._topic_rows = 0
        self._table_rows = 0
        self._hours = 0
        self._differing_hours = 0

    def hour(self, one: Hour) -> None:
        self._hours += 1
        self._topic_rows += one.topic_rows
        self._table_rows += one.table_rows
        self._write({"topic": self._topic, "same": one.is_same, **_facts(one)})
        if one.is_same:
            return
        self._differing_hours += 1
        if not self._is_json and self._differing_hours <= SHOWN_MAX:
            remark = ", with different content" if one.topic_rows == one.table_rows else ""
            self._print(
                f"{self._topic}: partition {one.partition}, {_hour_text(one.hour)}: {one.topic_rows:,} rows in the "
                f"topic, {one.table_rows:,} in the table{remark}"
            )

    def difference(self, one: Difference) -> None:
        self.counts[one.kind] += 1
        self._write({"topic": self._topic, **one._asdict()})
        if not self._is_json and sum(self.counts.values()) <= SHOWN_MAX:
            detail = f": {one.detail}" if one.detail else ""
            self._print(f"{self._topic}: {one.kind} partition {one.partition} offset {one.offset}{detail}")

    def is_same(self, *, may_be_behind: bool) -> bool:
        return not any(count for kind, count in self.counts.items() if not (may_be_behind and kind == BEHIND))

    def close(self, *, dead_letters: int, older_rows: int) -> None:
        """Print the summary.

        `older_rows` is the number of rows before the first offset of the topic, which could not be compared.
        """
        counts = {kind: self.counts[kind] for kind in KINDS}
        if self._is_json:
            rows = {"topic_rows": self._topic_rows, "table_rows": self._table_rows, "older_rows": older_rows}
            names = {"topic": self._topic, "table": self._table}
            hours = {"hours": self._hours, "hours_apart": self._differing_hours}
            self._print(json.dumps({**names, **rows, **hours, "dead_letters": dead_letters, **counts}))
            return
        shown = min(SHOWN_MAX, total) if (total := sum(counts.values())) else 0
        if total > shown:
            self._print(f"{self._topic}: and {total - shown:,} more; --report FILE writes all of them")
        found = ", ".join(f"{count:,} {kind}" for kind, count in counts.items() if count) or "no difference"
        compared = f"{self._topic} and {self._table}: {self._topic_rows:,} and {self._table_rows:,} rows"
        self._print(f"{compared} in {self._hours:,} partition hours: {found}{_remarks(dead_letters, older_rows)}")

    def _print(self, text: str) -> None:
        print(text, file=self._out, flush=True)

    def _write(self, facts: dict[str, object]) -> None:
        if self._everything is not None:
            self._everything.write(json.dumps(facts) + "\n")


def _facts(one: Hour) -> dict[str, object]:
    return {**one._asdict(), "hour": _hour_text(one.hour)}


def _hour_text(hour: int) -> str:
    return f"{datetime(1970, 1, 1) + timedelta(hours=hour):%Y-%m-%dT%H}:00Z"


def _remarks(dead_letters: int, older_rows: int) -> str:
    remarks = []
    if dead_letters:
        remarks.append(f"{dead_letters:,} bad records are in the table of dead letters")
    if older_rows:
        remarks.append(f"{older_rows:,} rows are older than the first record of the topic")
    return f" ({'; '.join(remarks)})" if remarks else ""
