"""`scripts/fuzz`: runs parsers and handlers with millions of malformed inputs. See docs/fuzzing.md.

A *case* is the input of one parser, and the number of this parser. Seeds are frames captured from stock clients
(`corpus/`), and one message of every class and version, with all fields set. An engine mutates the seeds. A case fails
if a parser raises anything except its typed error, takes too long, or leaks memory.
"""
