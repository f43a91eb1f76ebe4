"""The files of a segment store: what the writes of :mod:`kwire.cluster.core.writes` become on disk.

A register, in two copies, has what must never be lost: the cookie of the disk, the number of starts, and for each
replica its sealed epoch and its end. Each replica has a journal with its entries and their stamps.
"""
