"""/admin/backups: make a snapshot of the node, list and read its files, and remove it.

`kwire backup create` uses these routes. A snapshot has every record that was acknowledged before the request, and is
consistent: it is what a kill of the server would have left at one moment. The server keeps one snapshot at a time.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import msgspec
from aiohttp import web

from kwire import __version__
from kwire.access.audit.entries import CLUSTER
from kwire.broker.backup.snapshot_builder import SnapshotFailed
from kwire.broker.backup.snapshots import (
    IDLE_SECONDS,
    READ_BYTES_MAX,
    Snapshot,
    SnapshotExists,
    SnapshotNotFound,
)
from kwire.web.answers.errors import Refusal
from kwire.web.needs import ALTER_CLUSTER
from kwire.web.requests.bodies import json_answer, number_in_path, query_of
from kwire.web.route import Answer, Route
from kwire.web.services import AdminServices
from storage.errors import StorageError

BYTES = "application/octet-stream"
PAGE_FILES_MAX = 10_000
PAGE_FILES_DEFAULT = 1_000
NUMBER = Annotated[int, msgspec.Meta(ge=0)]
PATH = {"number": NUMBER}


class ShownBackup(msgspec.Struct, kw_only=True):
    """A snapshot for a backup. `offline` are the partitions and directories that it does not have, with the reasons."""

    id: str
    created_ms: Annotated[int, msgspec.Meta(description="The time of the snapshot, in milliseconds since 1970.")]
    version: Annotated[str, msgspec.Meta(description="The version of the server.")]
    cluster_id: str
    node_id: int
    revision: Annotated[int, msgspec.Meta(description="The revision of the metadata store.")]
    topics: int
    partitions: int
    files: Annotated[int, msgspec.Meta(description="The number of files.")]
    size_bytes: int
    offline: dict[str, str]


class ShownFile(msgspec.Struct, kw_only=True):
    """A file: its number, its path in a backup, and its size."""

    number: int
    path: str
    size_bytes: int


class FileList(msgspec.Struct, kw_only=True):
    """A page of files. `next` is the `after` of the next page, null on the last page."""

    files: list[ShownFile]
    next: int | None


class RemovedBackup(msgspec.Struct, kw_only=True):
    removed: str


class FilesQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    after: Annotated[int, msgspec.Meta(ge=-1, description="Only files with larger numbers.")] = -1
    limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE_FILES_MAX)] = PAGE_FILES_DEFAULT


class ReadQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    offset: NUMBER = 0
    max_bytes: Annotated[int, msgspec.Meta(ge=1, le=READ_BYTES_MAX)] = READ_BYTES_MAX


async def create(services: AdminServices, request: web.Request) -> web.Response:
    with _refusals():
        snapshot = await services.snapshots.create()
    facts = {"files": len(snapshot.files), "bytes": snapshot.size_bytes}
    services.audit.changed("backup.created", CLUSTER, snapshot.snapshot_id, facts)
    return json_answer(_shown(services, snapshot), 201)


async def get(services: AdminServices, request: web.Request) -> web.Response:
    with _refusals():
        return json_answer(_shown(services, services.snapshots.get(request.match_info["backup"])))


async def list_files(services: AdminServices, request: web.Request) -> web.Response:
    query = query_of(request, FilesQuery)
    with _refusals():
        files = services.snapshots.get(request.match_info["backup"]).files
    start = query.after + 1
    page = [
        ShownFile(number=number, path=one.path, size_bytes=one.size_bytes)
        for number, one in enumerate(files[start : start + query.limit], start)
    ]
    end = start + len(page)
    return json_answer(FileList(files=page, next=end - 1 if page and end < len(files) else None))


async def read_file(services: AdminServices, request: web.Request) -> web.Response:
    query, number = query_of(request, ReadQuery), number_in_path(request, "number")
    with _refusals():
        data = await services.snapshots.read(request.match_info["backup"], number, query.offset, query.max_bytes)
    return web.Response(body=data, content_type=BYTES)


async def remove(services: AdminServices, request: web.Request) -> web.Response:
    with _refusals():
        await services.snapshots.remove(request.match_info["backup"])
    return json_answer(RemovedBackup(removed=request.match_info["backup"]))


def _shown(services: AdminServices, snapshot: Snapshot) -> ShownBackup:
    return ShownBackup(
        id=snapshot.snapshot_id,
        created_ms=snapshot.created_ms,
        version=__version__,
        cluster_id=services.cluster_id,
        node_id=services.port.config.node_id,
        revision=snapshot.revision,
        topics=snapshot.topic_count,
        partitions=snapshot.partition_count,
        files=len(snapshot.files),
        size_bytes=snapshot.size_bytes,
        offline=dict(snapshot.offline),
    )


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except SnapshotNotFound as error:
        raise Refusal(str(error), code="BackupNotFound", status=404) from None
    except SnapshotExists as error:
        raise Refusal(str(error), code="BackupExists", status=409) from None
    except (SnapshotFailed, StorageError, OSError) as error:
        raise Refusal(str(error), code="BackupFailed", status=503) from error


ROUTES: tuple[Route[AdminServices], ...] = (
    Route(
        "POST",
        "/admin/backups",
        create,
        summary="Make a snapshot for a backup",
        description=(
            "The snapshot has every record that was acknowledged before this request, and the metadata store, at one "
            "moment. It consists of hard links, so it needs no space at first. It keeps the space of files that the "
            f"logs remove later: remove it after reading it. It is removed if it is not read for {IDLE_SECONDS:.0f} "
            "seconds, and if the disk becomes full. The file with the keys of stored secrets is not in it."
        ),
        tag="admin",
        answers={201: ShownBackup},
        needs=(ALTER_CLUSTER,),
    ),
    Route(
        "GET",
        "/admin/backups/{backup}",
        get,
        summary="Show a snapshot",
        tag="admin",
        answers={200: ShownBackup},
        needs=(ALTER_CLUSTER,),
    ),
    Route(
        "GET",
        "/admin/backups/{backup}/files",
        list_files,
        summary="List the files of a snapshot",
        tag="admin",
        query=FilesQuery,
        answers={200: FileList},
        needs=(ALTER_CLUSTER,),
    ),
    Route(
        "GET",
        "/admin/backups/{backup}/files/{number}",
        read_file,
        summary="Read a part of a file of a snapshot",
        description="The answer is shorter than `max_bytes` only at the end of the file.",
        tag="admin",
        parameters=PATH,
        query=ReadQuery,
        answers={200: Answer("The bytes from `offset` on.", {BYTES: None})},
        needs=(ALTER_CLUSTER,),
    ),
    Route(
        "DELETE",
        "/admin/backups/{backup}",
        remove,
        summary="Remove a snapshot",
        tag="admin",
        answers={200: RemovedBackup},
        needs=(ALTER_CLUSTER,),
    ),
)
