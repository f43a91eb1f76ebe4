"""The log on disk: batches, offsets and files; knows nothing of kwire, of sockets, clocks or event loops.

What enters: whole record batches of message format 2, checked by :mod:`storage.batch`, appended through
:class:`storage.log.Log`. What leaves: read-only views of the page cache that hold whole batches. :mod:`storage.store`
owns the data directory and hands out one log per partition; :mod:`storage.journal` is the small fsynced record file
beneath the catalogue. Every call comes from one thread, except for the functions handed to ``background``.
"""
