"""Partition logs on disk: record batches, segments, indexes and recovery. Imports nothing of ``kwire``.

Everything is called from one thread, except functions passed to ``background`` and where a docstring says "in any
thread".
"""
