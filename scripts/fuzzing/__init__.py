"""Hostile input by the million: `scripts/fuzz`, docs/fuzzing.md.

A *case* is some bytes and the one parser they are for. Seeds are frames captured from stock clients (`corpus/`) and one
filled message of every kind in every version; an engine changes them and watches that nothing but the typed error comes
out, soon and without memory being kept.
"""
