"""The server's log on stderr: its formats, its limits, and the messages about start and stop.

`docs/logging.md` describes it for operators.
"""
