"""The seeds: the cases from which the engines create all other cases."""

from fuzzing import corpus
from fuzzing.examples import batches, encoded_examples
from fuzzing.wire_target import BATCH, GROUP_RECORD, MESSAGE, PAYLOAD, SPEC, case_of_message, case_of_stream

HEADER_BYTES = 61
SPEC_EVERY = 16


def wire_seeds() -> list[bytes]:
    encoded = encoded_examples()
    group_keys = ("0001000167000174", "00020001", "00010001670001740000000000")
    return [
        *(case_of_stream(frame) for frame in corpus.frames()),
        *(case_of_message(number, one) for number, one in enumerate(encoded)),
        # The specification is slow, so it gets only every 16th message. Mutations also change which message is used.
        *(case_of_message(number, one, SPEC) for number, one in enumerate(encoded) if number % SPEC_EVERY == 0),
        *(bytes((BATCH,)) + batch for batch in batches()),
        *(bytes((PAYLOAD, codec)) + batch[HEADER_BYTES:] for codec, batch in enumerate(batches())),
        *(bytes((GROUP_RECORD, len(key) // 2)) + bytes.fromhex(key) + b"\x00\x03" for key in group_keys),
        bytes((MESSAGE, 0, 0)),
    ]
