"""A game lobby whose state is its history: who joins late reads all moves and has the same board as everybody else.

.venv/bin/python docs/examples/game_lobby/lobby.py player-1 [--moves 3] [--room game-lobby-42] [--url http://127.0.0.1:8082]
"""

import argparse
import random
from collections import Counter
from typing import Any

from kwire.client import CaughtUp, Client, Event, Gap, Unreachable

TARGETS = ("enemy-1", "enemy-2", "enemy-5")


class Board:
    """Built from events alone, so everybody who has read the same events has the same one."""

    def __init__(self) -> None:
        self.players: set[str] = set()
        self.hits: Counter[str] = Counter()

    def apply(self, event: Event) -> None:
        move: dict[str, Any] = event.data
        if event.type == "player_join":
            self.players.add(move["player"])
        elif event.type == "player_leave":
            self.players.discard(move["player"])
        elif event.type == "player_move":
            self.hits[move["target"]] += 1
        elif event.type == "round_start":
            self.hits.clear()

    def __str__(self) -> str:
        hits = ", ".join(f"{target} {count}" for target, count in sorted(self.hits.items()))
        return f"players: {', '.join(sorted(self.players))}; hits: {hits or 'none'}"


def play(client: Client, room: str, player: str, move_count: int) -> Board:
    board = Board()
    client.stream.publish(room, "player_join", {"player": player})
    for _ in range(move_count):
        move = {"player": player, "action": "attack", "target": random.choice(TARGETS)}
        client.stream.publish(room, "player_move", move)

    with client.stream.subscribe(room, from_offset=0, replay=True) as lobby:
        for item in lobby.items():
            if isinstance(item, Event):
                board.apply(item)
            elif isinstance(item, Gap):
                print(f"the room no longer has its beginning ({item.reason}): this board is not whole")
            elif isinstance(item, CaughtUp):
                break
    client.stream.publish(room, "player_leave", {"player": player})
    return board


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("player")
    parser.add_argument("--moves", type=int, default=3)
    parser.add_argument("--room", default="game-lobby-42")
    parser.add_argument("--url", default="http://127.0.0.1:8082")
    options = parser.parse_args()
    try:
        with Client(options.url, timeout_s=5.0) as client:
            print(play(client, options.room, options.player, options.moves))
    except KeyboardInterrupt:
        pass
    except Unreachable as error:
        raise SystemExit(f"is a server running? {error}") from None


if __name__ == "__main__":
    main()
