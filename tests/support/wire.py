"""An outlet that writes down what it is told, for sessions that only time is to act upon."""


class Wire:
    is_writable = True
    unsent_bytes = 0

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.is_aborted = False

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def abort(self) -> None:
        self.is_aborted = True

    def close(self) -> None:
        raise AssertionError

    finish = pause_reading = resume_reading = close
