"""kwire: a server that speaks Kafka's protocol, in Python.

This package is the server; the log on disk is the separate package ``storage``. ``docs/architecture.md`` defines which
package may import which, and ``scripts/check`` enforces it.
"""

__version__ = "0.1.0"
