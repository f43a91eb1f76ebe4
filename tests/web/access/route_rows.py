"""A request for every route of the HTTP port, with the rights that it needs."""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from kwire.access.acl import Operation, ResourceType
from kwire.web.routes import ROUTES
from tests.support.kafka_request_cases import CASES as KAFKA_CASES

Op = Operation
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
PROXY_JSON = "application/vnd.kafka.json.v2+json"
PROXY = "application/vnd.kafka.v2+json"
SCHEMA = {"eventType": "made", "type": "object"}
EVENT = {"event_type": "message", "data": 1}
STORED = {"topic": "{name}", "type": "made", "payload": {}}
HOOK_URL = "https://hooks.example/in"

# How a resource is made before a request is sent.
Setup = str
NOTHING, ROOM, PARTITIONED, EVENT_TOPIC = "", "room", "topic", "event topic"
GROUP_OF_TOPIC, EMPTY_GROUP, WEBHOOK, KEY, USER = "group", "empty group", "webhook", "key", "user"


class Row(NamedTuple):
    """A request, and the rights that it needs. `{name}`, `{member}`, `{webhook}`, `{key}` and `{user}` are filled in.

    `is_list`: the answer is always 200, and shows the resource only to clients with the right. `refusal`: the answer is
    always 200, and contains this text for clients without one of the rights.
    """

    method: str
    route: str
    rights: tuple[tuple[Operation, ResourceType], ...] = ()
    setup: Setup = NOTHING
    path: str = ""
    body: Any = None
    headers: Mapping[str, str] = MappingProxyType({})
    status: int = 200
    is_list: bool = False
    is_stream: bool = False
    refusal: str = ""

    @property
    def is_proxy(self) -> bool:
        return any("vnd.kafka" in value for value in self.headers.values())


READ_GROUP = ((Op.READ, GROUP), (Op.READ, TOPIC))
ALTER_CLUSTER = OTHERS_HOOK = ((Op.ALTER, CLUSTER),)
SENDING_HOOK = ((Op.ALTER, CLUSTER), (Op.READ, TOPIC))
G, M, T, W = "/consumer-groups/{group}", "/members/{member}", "/topics/{topic}", "/webhooks/{webhook}"
GP, TP = "/consumer-groups/{name}", "/topics/{name}"
PROXY_BODY = {"records": [{"value": 1}]}
AS_PROXY = {"Content-Type": PROXY_JSON, "Accept": PROXY}
ACCEPT_PROXY = {"Accept": PROXY}

TABLE: tuple[Row, ...] = (
    Row("GET", "/healthz"),
    Row("GET", "/readyz"),
    Row("GET", "/metrics", ((Op.DESCRIBE, CLUSTER),)),
    Row("GET", "/api/v1/groups", ((Op.DESCRIBE, GROUP),), GROUP_OF_TOPIC, is_list=True),
    Row("GET", "/api/v1/groups/{group}", ((Op.DESCRIBE, GROUP),), GROUP_OF_TOPIC, "/api/v1/groups/{name}"),
    # rooms
    Row("POST", "/rooms/{room}/events", ((Op.WRITE, TOPIC),), ROOM, "/rooms/{name}/events", EVENT, status=201),
    Row(
        "POST",
        "/rooms/{room}/events",
        ((Op.WRITE, TOPIC), (Op.CREATE, TOPIC)),
        NOTHING,
        "/rooms/{name}/events",
        EVENT,
        status=201,
    ),
    Row(
        "POST",
        "/rooms/{room}/events",
        ((Op.WRITE, TOPIC), (Op.CREATE, CLUSTER)),
        NOTHING,
        "/rooms/{name}/events",
        EVENT,
        status=201,
    ),
    Row(
        "POST",
        "/rooms/{room}/events",
        ((Op.WRITE, TOPIC),),
        ROOM,
        "/rooms/{name}/events",
        json.dumps(EVENT).encode(),
        {"Content-Type": "application/x-ndjson"},
    ),
    Row("GET", "/rooms/{room}/events", ((Op.READ, TOPIC),), ROOM, "/rooms/{name}/events"),
    Row("GET", "/rooms/{room}/events/{offset}", ((Op.READ, TOPIC),), ROOM, "/rooms/{name}/events/0"),
    Row("GET", "/ws", ((Op.READ, TOPIC), (Op.WRITE, TOPIC)), ROOM, is_stream=True, status=101),
    Row("GET", "/rooms/{room}/subscribe", ((Op.READ, TOPIC),), ROOM, "/rooms/{name}/subscribe", is_stream=True),
    Row(
        "GET",
        "/rooms/{room}/subscribe",
        ((Op.READ, TOPIC), (Op.CREATE, TOPIC)),
        NOTHING,
        "/rooms/{name}/subscribe",
        is_stream=True,
    ),
    Row("GET", "/rooms", ((Op.DESCRIBE, TOPIC),), ROOM, is_list=True),
    Row("PUT", "/rooms/{room}", ((Op.CREATE, TOPIC),), NOTHING, "/rooms/{name}", {}, status=201),
    Row("PUT", "/rooms/{room}", ((Op.ALTER_CONFIGS, TOPIC),), ROOM, "/rooms/{name}", {"max_events": 5}),
    Row("PUT", "/rooms/{room}", ((Op.DESCRIBE, TOPIC),), ROOM, "/rooms/{name}", {}),
    Row("GET", "/rooms/{room}", ((Op.DESCRIBE, TOPIC),), ROOM, "/rooms/{name}"),
    Row("GET", "/rooms/{room}/subscribers", ((Op.DESCRIBE, TOPIC),), ROOM, "/rooms/{name}/subscribers"),
    Row("DELETE", "/rooms/{room}", ((Op.DELETE, TOPIC),), ROOM, "/rooms/{name}"),
    Row(
        "POST",
        "/api/v1/command",
        ((Op.WRITE, TOPIC),),
        ROOM,
        body={"command": "stream.publish", "payload": {"room": "{name}", **EVENT}},
    ),
    Row(
        "POST",
        "/api/v1/command",
        ((Op.WRITE, TOPIC), (Op.CREATE, TOPIC)),
        NOTHING,
        body={"command": "stream.publish", "payload": {"room": "{name}", **EVENT}},
    ),
    Row(
        "POST",
        "/api/v1/command",
        ((Op.READ, TOPIC),),
        ROOM,
        body={"command": "stream.history", "payload": {"room": "{name}"}},
    ),
    Row(
        "POST",
        "/api/v1/command",
        ((Op.DESCRIBE, TOPIC),),
        ROOM,
        body={"command": "stream.unsubscribe", "payload": {"room": "{name}"}},
    ),
    # consumer groups
    Row(
        "POST",
        G + "/offsets/commit",
        READ_GROUP,
        GROUP_OF_TOPIC,
        GP + "/offsets/commit",
        {"partition_id": 0, "offset": 0},
    ),
    Row("GET", "/consumer-groups", ((Op.DESCRIBE, GROUP),), GROUP_OF_TOPIC, is_list=True),
    Row("POST", G, READ_GROUP, PARTITIONED, GP, {"topic": "{name}"}, status=201),
    Row("DELETE", G, ((Op.DELETE, GROUP),), EMPTY_GROUP, GP),
    Row("POST", G + "/join", READ_GROUP, GROUP_OF_TOPIC, GP + "/join", {}),
    Row("GET", G + M + "/assignment", READ_GROUP, GROUP_OF_TOPIC, GP + M + "/assignment"),
    Row("POST", G + M + "/heartbeat", READ_GROUP, GROUP_OF_TOPIC, GP + M + "/heartbeat"),
    Row("DELETE", G + M + "/leave", ((Op.READ, GROUP),), GROUP_OF_TOPIC, GP + M + "/leave"),
    Row(
        "GET",
        G + "/offsets/{partition:(?!commit$)[^/]+}",
        ((Op.DESCRIBE, GROUP), (Op.DESCRIBE, TOPIC)),
        GROUP_OF_TOPIC,
        GP + "/offsets/0",
    ),
    Row("GET", G + "/stats", ((Op.DESCRIBE, GROUP),), GROUP_OF_TOPIC, GP + "/stats"),
    Row("GET", G + M + "/stream", READ_GROUP, GROUP_OF_TOPIC, GP + M + "/stream", is_stream=True),
    # the event store
    Row("POST", "/topics", ((Op.CREATE, TOPIC),), NOTHING, body={"name": "{name}", "schemas": [SCHEMA]}, status=201),
    Row("POST", "/topics", ((Op.CREATE, CLUSTER),), NOTHING, body={"name": "{name}", "schemas": [SCHEMA]}, status=201),
    Row("GET", T + "/schemas", ((Op.DESCRIBE, TOPIC),), EVENT_TOPIC, TP + "/schemas"),
    Row("PUT", T + "/schemas", ((Op.ALTER, TOPIC),), EVENT_TOPIC, TP + "/schemas", {"schemas": [SCHEMA]}),
    Row("PATCH", T + "/schemas", ((Op.ALTER, TOPIC),), EVENT_TOPIC, TP + "/schemas", {"schemas": [SCHEMA]}),
    Row("POST", "/events", ((Op.WRITE, TOPIC),), EVENT_TOPIC, body=STORED, status=201),
    Row("GET", T + "/events", ((Op.READ, TOPIC),), EVENT_TOPIC, TP + "/events"),
    Row("GET", "/events/{event}", ((Op.READ, TOPIC),), EVENT_TOPIC, "/events/{name}-1"),
    Row("GET", "/subscribe/all", ((Op.READ, TOPIC),), EVENT_TOPIC, is_stream=True),
    Row(
        "GET",
        "/subscribe/streams/{topic}",
        ((Op.READ, TOPIC),),
        EVENT_TOPIC,
        "/subscribe/streams/{name}",
        is_stream=True,
    ),
    # webhooks
    Row(
        "POST",
        "/consumers/register",
        ((Op.READ, TOPIC),),
        EVENT_TOPIC,
        body={"callback": HOOK_URL, "topics": {"{name}": "latest"}},
        status=201,
    ),
    Row("GET", "/consumers", OTHERS_HOOK, WEBHOOK, is_list=True),
    Row("GET", "/consumers/{webhook:(?!register$)[^/]+}", OTHERS_HOOK, WEBHOOK, "/consumers/{webhook}"),
    Row("DELETE", "/consumers/{webhook:(?!register$)[^/]+}", OTHERS_HOOK, WEBHOOK, "/consumers/{webhook}"),
    Row(
        "POST",
        "/webhooks",
        ((Op.READ, TOPIC),),
        EVENT_TOPIC,
        body={"url": HOOK_URL, "topics": {"{name}": "latest"}},
        status=201,
    ),
    Row("GET", "/webhooks", OTHERS_HOOK, WEBHOOK, is_list=True),
    Row("GET", W, OTHERS_HOOK, WEBHOOK, W),
    Row("PATCH", W, SENDING_HOOK, WEBHOOK, W, {"description": "changed"}),
    Row("DELETE", W, OTHERS_HOOK, WEBHOOK, W),
    Row("POST", W + "/pause", OTHERS_HOOK, WEBHOOK, W + "/pause"),
    Row("POST", W + "/resume", SENDING_HOOK, WEBHOOK, W + "/resume"),
    Row("POST", W + "/rotate-secret", OTHERS_HOOK, WEBHOOK, W + "/rotate-secret"),
    Row("GET", W + "/deliveries", OTHERS_HOOK, WEBHOOK, W + "/deliveries"),
    Row("GET", W + "/dead-letters", OTHERS_HOOK, WEBHOOK, W + "/dead-letters"),
    Row("POST", W + "/dead-letters/resend", SENDING_HOOK, WEBHOOK, W + "/dead-letters/resend"),
    Row(
        "DELETE",
        W + "/dead-letters/{event:(?!resend$)[^/]+}",
        OTHERS_HOOK,
        WEBHOOK,
        W + "/dead-letters/{name}-1",
        status=404,
    ),
    Row("POST", W + "/resend", SENDING_HOOK, WEBHOOK, W + "/resend", {"eventIds": ["{name}-1"]}),
    Row("POST", W + "/replay", SENDING_HOOK, WEBHOOK, W + "/replay", {"sinceEventId": "{name}-1"}),
    Row("POST", W + "/test", OTHERS_HOOK, WEBHOOK, W + "/test"),
    # topics, and the API of REST Proxy
    Row("POST", T, ((Op.CREATE, TOPIC),), NOTHING, TP, {}, status=201),
    Row("POST", T, ((Op.CREATE, CLUSTER),), NOTHING, TP, {}, status=201),
    Row("POST", T, ((Op.WRITE, TOPIC),), PARTITIONED, TP, PROXY_BODY, AS_PROXY),
    Row("POST", T, ((Op.WRITE, TOPIC), (Op.CREATE, TOPIC)), NOTHING, TP, PROXY_BODY, AS_PROXY),
    Row("PUT", T + "/partitions", ((Op.ALTER, TOPIC),), PARTITIONED, TP + "/partitions", {"num_partitions": 2}),
    Row("DELETE", T, ((Op.DELETE, TOPIC),), PARTITIONED, TP),
    Row("POST", T + "/publish", ((Op.WRITE, TOPIC),), PARTITIONED, TP + "/publish", EVENT),
    Row("POST", T + "/partitions/{partition}/consume", ((Op.READ, TOPIC),), PARTITIONED, TP + "/partitions/0/consume"),
    Row("GET", T + "/records", ((Op.READ, TOPIC),), ROOM, TP + "/records"),
    Row(
        "GET",
        T + "/partitions/{partition}/records/{offset}",
        ((Op.READ, TOPIC),),
        ROOM,
        TP + "/partitions/0/records/0",
    ),
    Row("GET", T + "/stats", ((Op.DESCRIBE, TOPIC),), PARTITIONED, TP + "/stats"),
    Row("GET", "/topics", ((Op.DESCRIBE, TOPIC),), PARTITIONED, is_list=True),
    Row("GET", "/topics", ((Op.DESCRIBE, TOPIC),), EVENT_TOPIC, "/topics?events=true", is_list=True),
    Row("GET", T, ((Op.DESCRIBE, TOPIC),), PARTITIONED, TP, headers=ACCEPT_PROXY),
    Row("GET", T + "/partitions", ((Op.DESCRIBE, TOPIC),), PARTITIONED, TP + "/partitions", headers=ACCEPT_PROXY),
    Row(
        "GET",
        T + "/partitions/{partition}",
        ((Op.DESCRIBE, TOPIC),),
        PARTITIONED,
        TP + "/partitions/0",
        headers=ACCEPT_PROXY,
    ),
    Row(
        "GET",
        T + "/partitions/{partition}/offsets",
        ((Op.DESCRIBE, TOPIC),),
        PARTITIONED,
        TP + "/partitions/0/offsets",
        headers=ACCEPT_PROXY,
    ),
    Row(
        "GET",
        T + "/partitions/{partition}/segments",
        ((Op.DESCRIBE, TOPIC), (Op.DESCRIBE, CLUSTER)),
        PARTITIONED,
        TP + "/partitions/0/segments",
    ),
    Row("GET", "/brokers", headers=ACCEPT_PROXY),
    Row(
        "POST",
        T + "/partitions/{partition}",
        ((Op.WRITE, TOPIC),),
        PARTITIONED,
        TP + "/partitions/0",
        PROXY_BODY,
        AS_PROXY,
    ),
    Row(
        "POST",
        T + "/partitions/{partition}",
        ((Op.WRITE, TOPIC), (Op.CREATE, TOPIC)),
        NOTHING,
        TP + "/partitions/0",
        PROXY_BODY,
        AS_PROXY,
    ),
    Row("POST", "/tickets", status=201),
    Row("POST", "/session", status=201),
    Row("GET", "/session"),
    Row("DELETE", "/session", status=204),
    Row("POST", "/keys", ALTER_CLUSTER, body={"scope": "acme"}, status=201),
    Row("GET", "/keys", ALTER_CLUSTER),
    Row("GET", "/keys/{key}", ALTER_CLUSTER, KEY),
    Row("GET", "/keys/{key}/usage", ALTER_CLUSTER, KEY),
    Row("PATCH", "/keys/{key}", ALTER_CLUSTER, KEY, body={"max_events": 5}),
    Row("POST", "/keys/{key}/rotate", ALTER_CLUSTER, KEY),
    Row("POST", "/keys/{key}/aliases", ALTER_CLUSTER, KEY, status=201),
    Row("DELETE", "/keys/{key}", ALTER_CLUSTER, KEY),
    Row("GET", "/users", ((Op.DESCRIBE, CLUSTER),)),
    Row("POST", "/users", ALTER_CLUSTER, USER, body={"name": "new-{name}", "password": "a-secret"}, status=201),
    Row("PUT", "/users/{user}/password", ALTER_CLUSTER, USER, body={"password": "another-one"}, status=204),
    Row("DELETE", "/users/{user}", ALTER_CLUSTER, USER, status=204),
    Row("GET", "/admin/node", ((Op.DESCRIBE, CLUSTER),)),
    Row("GET", "/about"),
    Row("GET", "/overview", ((Op.DESCRIBE, CLUSTER),)),
    Row("GET", "/overview/topics", ((Op.DESCRIBE, TOPIC),), PARTITIONED, is_list=True),
    Row("POST", "/admin/backups", ALTER_CLUSTER, status=201),
    Row("GET", "/admin/backups/{backup}", ALTER_CLUSTER, path="/admin/backups/nothing", status=404),
    Row("GET", "/admin/backups/{backup}/files", ALTER_CLUSTER, path="/admin/backups/nothing/files", status=404),
    Row(
        "GET",
        "/admin/backups/{backup}/files/{number}",
        ALTER_CLUSTER,
        path="/admin/backups/nothing/files/0",
        status=404,
    ),
    Row("DELETE", "/admin/backups/{backup}", ALTER_CLUSTER, path="/admin/backups/nothing", status=404),
    # These need a key. Users with passwords are refused.
    Row("POST", "/db/api/v1/events", body={"topic": "{name}", "data": 1}, status=401),
    Row("GET", "/db/api/v1/events/subscribe", path="/db/api/v1/events/subscribe?topic={name}", status=401),
    *(
        Row("POST", f"/db/internal/v1/subscriptions/{name}", ALTER_CLUSTER, body={"key_uuid": "{name}"}, status=401)
        for name in ("request_slot", "release_slot")
    ),
    *(
        Row(
            *("POST", case.route, case.rights, case.setup, case.path, case.body),
            is_list=case.is_list,
            refusal=case.refusal,
        )
        for case in KAFKA_CASES
    ),
    Row("GET", "/openapi.json"),
    Row("GET", "/", status=302),
    Row("GET", "/console"),
    Row("GET", "/console/{path:.*}", path="/console/topics"),
    Row("GET", "/examples"),
    Row("GET", "/examples/{name}", path="/examples/chat"),
    Row("GET", "/console/static/{build}/{file:.+}", path="/console/static/any/console.css"),
    *(Row("GET", path) for path in ("/docs", "/kwire.js", "/kwire.d.ts")),
)

BY_ROUTE = {(route.method, route.path): route for route in ROUTES}


def filled(body: Any, names: dict[str, str]) -> Any:
    if isinstance(body, str):
        return body.replace("{name}", names.get("name", ""))
    if isinstance(body, dict):
        return {filled(key, names): filled(value, names) for key, value in body.items()}
    return [filled(one, names) for one in body] if isinstance(body, list) else body
