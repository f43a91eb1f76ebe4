"""The limits of decoded messages, and the sizes of chunks."""

# Maximum number of elements of all arrays of one message. It allows a hundred thousand partitions, each in its own
# topic, and some more. An element can take three bytes in the frame and a hundred in memory. Without this limit a
# decoded message could be forty times as large as its frame and take seconds to decode. Tagged fields are included in
# the limit: unknown tagged fields are not stored, but skipping twenty million of them would take seconds.
ELEMENTS_MAX = 250_000

# Elements that a chunked decoder or encoder processes between two yields, in less than half a millisecond.
ELEMENTS_PER_CHUNK = 150
# 2 ** BYTES_PER_ELEMENT_LOG2 bytes of strings or opaque data take as long as one element.
BYTES_PER_ELEMENT_LOG2 = 10
# 2 ** FIXED_PER_ELEMENT_LOG2 numbers or UUIDs of an array take as long as one element.
FIXED_PER_ELEMENT_LOG2 = 4
FIXED_PER_CHUNK = ELEMENTS_PER_CHUNK << FIXED_PER_ELEMENT_LOG2

# Kafka's limit in all versions: the largest value of the two-byte length of versions that are not flexible.
STRING_BYTES_MAX = 0x7FFF
