"""Jobs of the pipeline, run by a test in its own process on the Spark session there is."""

import argparse

from kwire.pipeline import jobs


def run_job(*words: str) -> int:
    """The exit code of `kwire pipeline WORDS…`."""
    parser = argparse.ArgumentParser()
    jobs.add(parser)
    return jobs.run(parser.parse_args(words))
