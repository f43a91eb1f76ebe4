"""The Kafka protocol without I/O. Each message is declared once, as a typed class (`messages`, `records`, `schema`).

The specification (`spec`) and the generated code (`codec`) are both derived from this declaration. `spec` is readable
and slow, and is the reference for `codec`.
"""
