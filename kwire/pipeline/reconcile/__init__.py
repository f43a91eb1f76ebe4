"""Checks that topics and their tables hold the same events: first by counts and checksums, then row by row."""

from kwire.pipeline.reconcile.job import add_arguments as add_arguments
from kwire.pipeline.reconcile.job import run as run
