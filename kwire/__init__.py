"""kwire: a server that speaks Kafka's protocol, in Python.

This package is the server; the log on disk is the package ``storage`` beside it. Which room may use which is written
in ``docs/architecture.md`` and checked by ``scripts/check``.
"""

__version__ = "0.1.0"
