"""Management of rooms: list, create, describe and delete."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from kwire.client.http import Http, room_path

PAGE_ROOMS = 500


@dataclass(frozen=True, slots=True)
class RoomInfo:
    """A description of a room. `facts` is the complete response of the server."""

    name: str
    epoch: str
    oldest_offset: int
    newest_offset: int
    subscribers: int
    facts: Mapping[str, Any]

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Self:
        return cls(
            name=facts["room"],
            epoch=facts["epoch"],
            oldest_offset=facts["oldest_offset"],
            newest_offset=facts["newest_offset"],
            subscribers=facts["subscribers"],
            facts=facts,
        )


class Rooms:
    """The calls that manage rooms, available as `client.rooms`."""

    def __init__(self, http: Http) -> None:
        self._http = http

    async def list(self, prefix: str = "") -> AsyncIterator[str]:
        """Yield all room names that begin with `prefix`, sorted. The client requests the names page by page."""
        after = ""
        while True:
            query: dict[str, str | int] = {"limit": PAGE_ROOMS}
            if prefix:
                query["prefix"] = prefix
            if after:
                query["after"] = after
            page = await self._http.call("GET", "/rooms", query=query)
            for room in page["rooms"]:
                yield room["room"]
            after = page.get("next") or ""
            if not after:
                return

    async def create(self, room: str, **settings: Any) -> RoomInfo:
        """Create a room, or change the retention of an existing room (`retention_hours=`, `max_events=` …)."""
        return RoomInfo.of(await self._http.call("PUT", room_path(room), settings))

    async def get(self, room: str) -> RoomInfo:
        return RoomInfo.of(await self._http.call("GET", room_path(room)))

    async def delete(self, room: str) -> None:
        """Delete a room with all its events."""
        await self._http.call("DELETE", room_path(room))
