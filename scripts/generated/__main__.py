"""Writes every generated page. With --check, only reports the pages that are out of date."""

import sys
from pathlib import Path

from generated import (
    benchmark_chart,
    configuration,
    dashboard,
    metrics,
    on_disk,
    overview,
    protocol,
    requirements,
    stream_engine,
)

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = {
    "configuration.md": configuration.render,
    "monitoring/dashboard.json": dashboard.render,
    "monitoring/metrics.md": metrics.render,
    "on-disk.md": on_disk.render,
    "pictures/benchmarks.svg": benchmark_chart.render,
    "pictures/overview.svg": overview.render,
    "protocol.md": protocol.render,
    "requirements.md": requirements.render,
    "stream-engine.md": stream_engine.render_page,
    **stream_engine.PICTURES,
}


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        print("usage: scripts/generate [--check]", file=sys.stderr)
        return 2
    stale = []
    for name, render in PAGES.items():
        path, page = DOCS / name, render()
        if path.is_file() and path.read_text(encoding="utf-8") == page:
            continue
        if arguments:
            stale.append(name)
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(page, encoding="utf-8")
            print(f"wrote docs/{name}")
    for name in stale:
        print(f"docs/{name} is out of date: run scripts/generate", file=sys.stderr)
    return 1 if stale else 0


sys.exit(main(sys.argv[1:]))
