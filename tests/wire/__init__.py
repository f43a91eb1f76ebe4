"""The protocol without I/O: declarations, the straight-line codec, and the specification that it must agree with."""
