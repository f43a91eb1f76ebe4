"""Event topics of a bridge keep their one partition, and the settings that the event store needs."""

import pytest

from tests.support.engines import OVER_APACHE_PARAM, OVER_KWIRE, Engine
from tests.support.http import Http
from tests.support.node import in_uvloop

TOPIC, LIST_CHANGE, REMOVAL = 2, 2, 1
# The source of settings that a topic itself has.
TOPIC_CONFIG = 1
over_clusters = pytest.mark.parametrize("engine", [OVER_KWIRE, OVER_APACHE_PARAM], indirect=True)


async def change(http: Http, name: str, setting: str, value: str | None, operation: int = 0) -> tuple[int, str]:
    """Send IncrementalAlterConfigs, and return the error code and message."""
    configs = [{"name": setting, "config_operation": operation, "value": value}]
    resources = [{"resource_type": TOPIC, "resource_name": name, "configs": configs}]
    answer = await http.post("/kafka/IncrementalAlterConfigs", {"resources": resources, "validate_only": False})
    result = answer.json["responses"][0]
    return result["error_code"], result["error_message"] or ""


async def replace_all(http: Http, name: str, settings: dict[str, str]) -> tuple[int, str]:
    """Send AlterConfigs, which removes all other settings, and return the error code and message."""
    configs = [{"name": setting, "value": value} for setting, value in settings.items()]
    resources = [{"resource_type": TOPIC, "resource_name": name, "configs": configs}]
    answer = await http.post("/kafka/AlterConfigs", {"resources": resources, "validate_only": False})
    result = answer.json["responses"][0]
    return result["error_code"], result["error_message"] or ""


async def explicit_settings(http: Http, name: str) -> dict[str, str]:
    """Return the settings that the topic itself has."""
    resource = {"resource_type": TOPIC, "resource_name": name, "configuration_keys": None}
    answer = await http.post("/kafka/DescribeConfigs", {"resources": [resource]})
    configs = answer.json["results"][0]["configs"]
    return {one["name"]: one["value"] for one in configs if one["config_source"] == TOPIC_CONFIG}


@over_clusters
@in_uvloop
async def test_the_whole_settings_of_an_event_topic_include_what_the_event_store_needs(engine: Engine) -> None:
    async with engine.http() as http:
        created = await http.post("/topics", {"name": "facts", "schemas": [{"eventType": "made"}]})
        assert created.status == 201, created
        fixed = {"cleanup.policy": "delete", "compression.type": "producer"}
        for settings, removed in (
            ({}, "needs cleanup.policy=delete and compression.type=producer"),
            ({"cleanup.policy": "delete"}, "needs compression.type=producer"),
            ({"compression.type": "producer"}, "needs cleanup.policy=delete"),
        ):
            code, message = await replace_all(http, "facts", {"retention.ms": "86400000", **settings})
            assert (code, removed in message) == (40, True), message
            assert (await explicit_settings(http, "facts")).items() >= fixed.items()
        assert (await replace_all(http, "facts", {**fixed, "cleanup.policy": "compact"}))[0] == 40
        assert await replace_all(http, "facts", {**fixed, "retention.ms": "86400000"}) == (0, "")
        assert await explicit_settings(http, "facts") == {**fixed, "retention.ms": "86400000"}


@over_clusters
@in_uvloop
async def test_what_the_event_store_needs_is_not_changed(engine: Engine) -> None:
    async with engine.http() as http:
        created = await http.post("/topics", {"name": "facts", "schemas": [{"eventType": "made"}]})
        assert created.status == 201, created

        more = await http.put("/topics/facts/partitions", {"num_partitions": 2})
        assert (more.status, "always has one partition" in str(more.json)) == (400, True), more
        topic = {"name": "facts", "count": 2, "assignments": None}
        asked = {"topics": [topic], "timeout_ms": 5000, "validate_only": False}
        refused = (await http.post("/kafka/CreatePartitions", asked)).json["results"][0]
        assert (refused["error_code"], "must have one partition" in refused["error_message"]) == (37, True)

        for setting, value, operation in (
            ("cleanup.policy", "compact", 0),
            ("cleanup.policy", "compact", LIST_CHANGE),
            ("cleanup.policy", None, REMOVAL),
            ("compression.type", "gzip", 0),
        ):
            code, message = await change(http, "facts", setting, value, operation)
            assert (code, "of a topic of the event store must be" in message) == (40, True), (setting, message)
        assert (await change(http, "facts", "retention.ms", "86400000"))[0] == 0
        assert (await change(http, "facts", "cleanup.policy", "delete"))[0] == 0
