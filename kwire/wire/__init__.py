"""The Kafka protocol without I/O: bytes in, values out, and back.

A message is declared once, as a typed class (`messages/`, one file per API, in the words of `schema.py`); so are the
records of internal topics (`records/`) and what consumers hand each other (`consumer_protocol.py`). From the
declaration come the construct spec (`spec.py`: readable, slow, the reference) and the straight-line codec (`codec.py`:
what the server runs). `frame.py` cuts the byte stream into requests; `connection.py` keeps answers in request order.
"""
