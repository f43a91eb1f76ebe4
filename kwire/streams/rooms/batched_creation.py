"""RoomCreator: creates rooms in batches, with one commit of the catalogue per batch.

A commit waits for the disk. Rooms are created on first use, so a thousand clients that connect at once may need a
thousand rooms. While one commit is running, further requests are collected for the next commit.
"""

import asyncio
import logging
from itertools import islice

from kwire.broker.topics.catalogue import ADDED_PER_COMMIT_MAX
from kwire.broker.topics.topics import NewTopic, Topic, Topics
from kwire.errors import ErrorCode, KafkaError

log = logging.getLogger("kwire.broker")

# While far too many logs are open (`Topics.has_too_many_open_logs`), a commit waits until some logs have been closed.
# It waits at most CROWDED_SECONDS_MAX, because the open logs may all be in use.
CROWDED_POLL_SECONDS = 0.01
CROWDED_SECONDS_MAX = 5.0
# The maximum number of rooms per commit. Checking the settings of one topic takes about 20 microseconds.
ROOMS_PER_COMMIT = ADDED_PER_COMMIT_MAX


class RoomCreator:
    """The queue of rooms to be created. `count` is the length of the queue. Use it only in the event loop's thread."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._pending: dict[str, tuple[NewTopic, asyncio.Future[Topic]]] = {}
        self._work: asyncio.Task[None] | None = None

    @property
    def count(self) -> int:
        return len(self._pending)

    def has(self, name: str) -> bool:
        return name in self._pending

    async def create(self, new: NewTopic) -> Topic:
        """Create a topic whose settings the caller has checked. If the topic exists by then, return the existing one.

        Raises KafkaError, or the exception that made the creation fail.
        """
        pending = self._pending.get(new.name)
        if pending is None:
            created: asyncio.Future[Topic] = asyncio.get_running_loop().create_future()
            # Retrieve the exception. Otherwise asyncio would log it if all callers have been cancelled.
            created.add_done_callback(lambda done: done.cancelled() or done.exception())
            pending = self._pending[new.name] = new, created
            if self._work is None or self._work.done():
                self._work = asyncio.ensure_future(self._create_pending())
        return await asyncio.shield(pending[1])

    async def _create_pending(self) -> None:
        """Create all pending rooms. If this fails, all waiting callers get the error."""
        try:
            while self._pending:
                await self._create_next()
        except asyncio.CancelledError:
            self._fail_all(KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "the server is stopping"))
            raise
        except Exception as error:
            log.exception("rooms could not be created")
            self._fail_all(error)

    async def _create_next(self) -> None:
        await self._wait_until_uncrowded()
        some = [new for new, _ in islice(self._pending.values(), ROOMS_PER_COMMIT)]
        if len(some) == 1:
            await self._create_one(some[0])
            return
        try:
            await self._topics.create(some)
        except Exception:
            # The error does not say which topic failed. Create each topic separately, so that each caller gets its own
            # error.
            for new in some:
                await self._create_one(new)
        else:
            for new in some:
                self._complete(new)

    async def _wait_until_uncrowded(self) -> None:
        """Wait while far too many logs are open. Each new room opens a log, and closing takes longer than opening."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + CROWDED_SECONDS_MAX
        while self._topics.has_too_many_open_logs and loop.time() < give_up_at:
            await asyncio.sleep(CROWDED_POLL_SECONDS)

    async def _create_one(self, new: NewTopic) -> None:
        try:
            await self._topics.create([new])
        except Exception as error:
            self._complete(new, error)
        else:
            self._complete(new)

    def _complete(self, new: NewTopic, error: Exception | None = None) -> None:
        topic = self._topics.get(new.name)
        _, created = self._pending.pop(new.name)
        if topic is not None and (error is None or _exists_already(error)):
            created.set_result(topic)
        else:
            created.set_exception(
                error
                or KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the room was deleted right after it was created")
            )

    def _fail_all(self, error: Exception) -> None:
        for _, created in self._pending.values():
            created.set_exception(error)
        self._pending.clear()


def _exists_already(error: Exception) -> bool:
    return isinstance(error, KafkaError) and error.code is ErrorCode.TOPIC_ALREADY_EXISTS
