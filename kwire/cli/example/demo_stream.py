"""Events of an hour in three rooms: people come in waves, write for a while, and leave; some events are late."""

import math
import random
from datetime import datetime, timedelta

from kwire.client import NewEvent

# The rooms, and the number of people in each.
ROOMS = {"lobby": 26, "match-17": 14, "support": 8}
MINUTES = 60


def demo_stream(began: datetime, source: random.Random) -> dict[str, list[NewEvent]]:
    """Return the events of each room, in the order in which they arrive."""
    arrivals: dict[str, list[tuple[datetime, NewEvent]]] = {room: [] for room in ROOMS}
    for number, (room, people) in enumerate(ROOMS.items()):
        for person in range(people * 3):
            user = f"{room}-{person % people}"
            wave = (0.5 + 0.45 * math.sin(number * 2.1 + person)) * MINUTES
            minute = min(max(wave + source.gauss(0, 5), 0), MINUTES - 1)
            for turn in range(source.randint(4, 24)):
                kind = "joined" if not turn else source.choice(["message", "message", "message", "reaction"])
                moment = began + timedelta(minutes=minute)
                event = NewEvent(kind, {"user": user, "at": moment.isoformat()})
                arrivals[room].append((moment + timedelta(seconds=source.choice([0, 0, 0, 20, 60])), event))
                minute += source.expovariate(2.0)
                if minute >= MINUTES:
                    break
    return {room: [event for _, event in sorted(found, key=lambda one: one[0])] for room, found in arrivals.items()}
