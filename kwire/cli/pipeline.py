"""kwire pipeline: Spark jobs on the topics and rooms of a running server."""

import argparse

from kwire.pipeline import jobs


def add(parser: argparse.ArgumentParser) -> None:
    jobs.add(parser)
    parser.set_defaults(run=jobs.run)
