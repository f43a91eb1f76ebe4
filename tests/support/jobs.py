"""Jobs of the pipeline, run by a test in its own process on the Spark session there is."""

import argparse

from kwire.cli import pipeline, program_parser


def run_job(*words: str) -> int:
    """The exit code of `kwire pipeline WORDS…`."""
    return pipeline.run(program_parser().parse_args(["pipeline", *words]))


def job_options(*words: str) -> argparse.Namespace:
    """The options of `kwire pipeline WORDS…`, as the function `run` of the job takes them."""
    options = program_parser().parse_args(["pipeline", *words])
    options.server = pipeline.server_of(options)
    return options
