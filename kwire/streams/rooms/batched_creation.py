"""Making rooms: those that many want at the same time are made together, with one commit of the catalogue.

A commit waits for the disk. Rooms appear by themselves when somebody first uses them, so a thousand clients that come
at once bring a thousand rooms; while one commit is under way, those that are wanted meanwhile gather for the next.
"""

import asyncio
import logging
from itertools import islice

from kwire.broker.topics import NewTopic, Topic, Topics
from kwire.errors import ErrorCode, KafkaError

log = logging.getLogger("kwire.broker")

# While far too many logs are open, what is wanted waits until some have been put away; not longer than this, because it
# may be others that hold them.
CROWDED_LOOK_SECONDS = 0.01
CROWDED_SECONDS_MAX = 5.0
# To check the settings of a topic takes some twenty microseconds; more wait for the next commit.
ROOMS_PER_COMMIT = 100


class RoomMaking:
    """Called from the event loop. `count` is how many are on their way."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._wanted: dict[str, tuple[NewTopic, asyncio.Future[Topic]]] = {}
        self._work: asyncio.Task[None] | None = None

    @property
    def count(self) -> int:
        return len(self._wanted)

    def has(self, name: str) -> bool:
        return name in self._wanted

    async def make(self, new: NewTopic) -> Topic:
        """The topic, checked before; also if somebody else makes it meanwhile. Raises KafkaError,
        or whatever else made the creation fail."""
        wanted = self._wanted.get(new.name)
        if wanted is None:
            made: asyncio.Future[Topic] = asyncio.get_running_loop().create_future()
            # Whoever waited for it may have gone.
            made.add_done_callback(lambda done: done.cancelled() or done.exception())
            wanted = self._wanted[new.name] = new, made
            if self._work is None or self._work.done():
                self._work = asyncio.ensure_future(self._make_wanted())
        return await asyncio.shield(wanted[1])

    async def _make_wanted(self) -> None:
        """Create what is wanted until nothing is; however this ends, it leaves no caller waiting."""
        try:
            while self._wanted:
                await self._make_some()
        except asyncio.CancelledError:
            self._give_up(KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "the server is stopping"))
            raise
        except Exception as error:
            log.exception("rooms could not be created")
            self._give_up(error)

    async def _make_some(self) -> None:
        await self._wait_for_room()
        some = [new for new, _ in islice(self._wanted.values(), ROOMS_PER_COMMIT)]
        if len(some) == 1:
            await self._make_alone(some[0])
            return
        try:
            await self._topics.create(some)
        except Exception:
            # The error does not say which of them cannot be created: each is tried by itself, and reports its own.
            for new in some:
                await self._make_alone(new)
        else:
            for new in some:
                self._end(new)

    async def _wait_for_room(self) -> None:
        """Each room brings a log that is open, and to put one away takes longer than to make one."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + CROWDED_SECONDS_MAX
        while self._topics.is_crowded and loop.time() < give_up_at:
            await asyncio.sleep(CROWDED_LOOK_SECONDS)

    async def _make_alone(self, new: NewTopic) -> None:
        try:
            await self._topics.create([new])
        except Exception as error:
            self._end(new, error)
        else:
            self._end(new)

    def _end(self, new: NewTopic, error: Exception | None = None) -> None:
        topic = self._topics.get(new.name)
        _, made = self._wanted.pop(new.name)
        if topic is not None and (error is None or _is_there_already(error)):
            made.set_result(topic)
        else:
            made.set_exception(error or KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "it was deleted at once"))

    def _give_up(self, error: Exception) -> None:
        for _, made in self._wanted.values():
            made.set_exception(error)
        self._wanted.clear()


def _is_there_already(error: Exception) -> bool:
    return isinstance(error, KafkaError) and error.code is ErrorCode.TOPIC_ALREADY_EXISTS
