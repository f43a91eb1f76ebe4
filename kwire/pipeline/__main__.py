"""Entry point of `python -m kwire.pipeline JOB …` and of spark-submit."""

import argparse
import sys

from kwire.exit_codes import INTERRUPTED
from kwire.pipeline import jobs


def main() -> int:
    parser = argparse.ArgumentParser(prog="kwire.pipeline", description="Spark jobs on topics and rooms.")
    jobs.add(parser)
    try:
        return jobs.run(parser.parse_args())
    except KeyboardInterrupt:
        print("kwire: interrupted", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
