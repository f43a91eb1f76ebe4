"""A naive twin of the rate window: it keeps every value for ever, and computes each rate from all of them."""

MS = 1000


class NaiveWindow:
    """Kafka's definition of a rate, written down without cleverness. Times never decrease here."""

    def __init__(self, sample_count: int, sample_s: float) -> None:
        self.sample_count = sample_count
        self.sample_s = sample_s
        # The samples ever begun: their start, and the time and value of each of their values.
        self.samples: list[tuple[float, list[tuple[float, float]]]] = []

    def add(self, value: float, now: float) -> None:
        live = self._live(now)
        if not live or now - live[-1][0] >= self.sample_s:
            self.samples.append((now, []))
        self.samples[-1][1].append((now, value))

    def total(self, now: float) -> float:
        return sum(value for _, values in self._live(now) for _, value in values)

    def window_s(self, now: float) -> float:
        live = self._live(now)
        elapsed = now - live[0][0] if live else 0.0
        full = int(elapsed / self.sample_s)
        while full < self.sample_count - 1:
            elapsed += self.sample_s
            full += 1
        return max(elapsed, 1 / MS)

    def throttle_ms(self, limit: float, now: float) -> int:
        rate = self.total(now) / self.window_s(now)
        return round((rate - limit) / limit * self.window_s(now) * MS) if rate > limit else 0

    def _live(self, now: float) -> list[tuple[float, list[tuple[float, float]]]]:
        oldest = now - self.sample_count * self.sample_s
        live = [one for one in self.samples if one[1][-1][0] > oldest]
        return live[-(self.sample_count + 1) :]
