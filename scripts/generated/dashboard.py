"""Generates docs/monitoring/dashboard.json, the Grafana dashboard. Its panels are declared here."""

import json
from typing import Any, NamedTuple

WIDTH = 24
COLUMNS = 3
PANEL_HEIGHT = 8
STAT_HEIGHT = 4
# Grafana replaces these in expressions: the chosen instances, and the range of rates.
CHOSEN = 'instance=~"$instance"'
RANGE = "$__rate_interval"
# The number of topics or groups in panels that show the largest ones.
LARGEST = 10


class Query(NamedTuple):
    """An expression of PromQL, and the name of its series."""

    expression: str
    legend: str = ""


class Panel(NamedTuple):
    title: str
    unit: str
    queries: tuple[Query, ...]
    description: str = ""
    kind: str = "timeseries"


def _rate(metric: str, by: str = "", labels: str = "") -> str:
    grouped = f"sum by ({by}) " if by else "sum "
    return f"{grouped}(rate({_of(metric, labels)}[{RANGE}]))"


def _of(metric: str, labels: str = "") -> str:
    return f"{metric}{{{CHOSEN}{', ' + labels if labels else ''}}}"


def _quantile(quantile: float, histogram: str, by: str = "") -> str:
    grouped = f"{by}, le" if by else "le"
    return f"histogram_quantile({quantile}, sum by ({grouped}) (rate({_of(histogram + '_bucket')}[{RANGE}])))"


def _largest(expression: str) -> str:
    return f"topk({LARGEST}, {expression})"


def _stat(title: str, unit: str, expression: str, legend: str = "", description: str = "") -> Panel:
    return Panel(title, unit, (Query(expression, legend),), description, "stat")


ROWS: dict[str, tuple[Panel, ...]] = {
    "Broker": (
        _stat("Version", "none", f"max by (version) ({_of('kwire_build_info')})", "{{version}}"),
        _stat("Uptime", "s", f"min(time() - {_of('process_start_time_seconds')})"),
        _stat("Kafka connections", "none", f"sum({_of('kwire_server_connections')})"),
        _stat("Topics", "none", f"sum({_of('kwire_broker_topics')})"),
        _stat("Partitions", "none", f"sum({_of('kwire_broker_partitions')})"),
        _stat(
            "Damaged or offline",
            "none",
            f"sum({_of('kwire_storage_offline_partitions')}) + sum({_of('kwire_storage_refusing_logs')}) "
            f"+ sum({_of('kwire_storage_quarantined_ranges')})",
            description="Partitions that are not served or accept no records, and ranges that cannot be read.",
        ),
        Panel(
            "Requests by API",
            "reqps",
            (Query(_rate("kwire_server_requests_total", "api"), "{{api}}"),),
        ),
        Panel(
            "Request latency by API, 99th percentile",
            "s",
            (Query(_quantile(0.99, "kwire_server_request_seconds", "api"), "{{api}}"),),
            "The latency of a Fetch includes its wait for records, that of a JoinGroup its wait for other members.",
        ),
        Panel(
            "Bytes of Kafka clients",
            "Bps",
            (
                Query(_rate("kwire_server_received_bytes_total"), "received"),
                Query(_rate("kwire_server_sent_bytes_total"), "sent"),
            ),
        ),
        Panel(
            "Kafka connections",
            "cps",
            (
                Query(_rate("kwire_server_connections_opened_total", "fate"), "{{fate}}"),
                Query(_rate("kwire_server_connections_closed_total", "reason"), "closed by the server: {{reason}}"),
            ),
        ),
        Panel(
            "Event loop",
            "s",
            (
                Query(f"max({_of('kwire_loop_stall_seconds_max')})", "longest stall since the start"),
                Query(_rate("kwire_loop_run_queue_wait_seconds_total"), "wait for a processor, per second"),
            ),
        ),
        Panel(
            "Stalls of the event loop", "none", (Query(f"sum(increase({_of('kwire_loop_stalls_total')}[{RANGE}]))"),)
        ),
        Panel(
            "Memory",
            "bytes",
            (
                Query(f"sum({_of('process_resident_memory_bytes')})", "resident, with mapped log pages"),
                Query(f"sum({_of('kwire_process_anonymous_memory_bytes')})", "without mapped files"),
            ),
        ),
        Panel(
            "Processor time", "percentunit", (Query(_rate("process_cpu_seconds_total", "instance"), "{{instance}}"),)
        ),
        Panel(
            "File descriptors",
            "none",
            (
                Query(f"sum by (instance) ({_of('process_open_fds')})", "open, {{instance}}"),
                Query(f"sum by (instance) ({_of('process_max_fds')})", "limit, {{instance}}"),
            ),
        ),
        Panel(
            "Transactions",
            "none",
            (Query(f"sum({_of('kwire_coordinator_open_transactions')})", "open"),),
        ),
        Panel(
            "Age of the oldest open transaction",
            "s",
            (Query(f"max({_of('kwire_coordinator_oldest_transaction_seconds')})"),),
            "An open transaction delays consumers with read_committed.",
        ),
        Panel("Fetch sessions", "none", (Query(f"sum({_of('kwire_broker_fetch_sessions')})"),)),
    ),
    "HTTP": (
        Panel(
            "Requests by route",
            "reqps",
            (Query(_largest(_rate("kwire_http_requests_total", "method, route")), "{{method}} {{route}}"),),
        ),
        Panel("Requests by status", "reqps", (Query(_rate("kwire_http_requests_total", "status"), "{{status}}"),)),
        Panel(
            "Latency by route, 99th percentile",
            "s",
            (Query(_largest(_quantile(0.99, "kwire_http_request_seconds", "method, route")), "{{method}} {{route}}"),),
        ),
        Panel(
            "Memory of requests and large answers",
            "bytes",
            (Query(f"sum({_of('kwire_http_memory_used_bytes')})"),),
        ),
        Panel(
            "Refused",
            "cps",
            (
                Query(_rate("kwire_http_connections_refused_total"), "connections"),
                Query(_rate("kwire_http_memory_refused_total"), "requests, for want of memory"),
            ),
        ),
    ),
    "Topics": (
        Panel(
            "Bytes in",
            "Bps",
            (Query(_largest(_rate("kwire_topic_appended_bytes_total", "topic")), "{{topic}}"),),
            f"The {LARGEST} topics with most traffic. Rooms share the series (rooms).",
        ),
        Panel(
            "Records in",
            "cps",
            (Query(_largest(_rate("kwire_topic_appended_records_total", "topic")), "{{topic}}"),),
        ),
        Panel(
            "Size",
            "bytes",
            (Query(_largest(f"sum by (topic) ({_of('kwire_storage_log_size_bytes')})"), "{{topic}}"),),
        ),
        Panel(
            "Bytes out",
            "Bps",
            (Query(_largest(_rate("kwire_topic_fetched_bytes_total", "topic")), "{{topic}}"),),
            "Fetched by Kafka consumers. Subscribers over HTTP are in the row Rooms.",
        ),
        Panel(
            "Records out",
            "cps",
            (Query(_largest(_rate("kwire_topic_fetched_records_total", "topic")), "{{topic}}"),),
        ),
        Panel(
            "Open logs and segments",
            "none",
            (
                Query(f"sum({_of('kwire_storage_open_logs')})", "open logs"),
                Query(f"sum({_of('kwire_storage_segments')})", "segments"),
            ),
        ),
    ),
    "Groups": (
        Panel(
            "Lag in seconds",
            "s",
            (Query(_largest(f"max by (group) ({_of('kwire_group_lag_seconds')})"), "{{group}}"),),
            "The age of the first record that a group has not committed.",
        ),
        Panel(
            "Lag in offsets",
            "none",
            (Query(_largest(f"sum by (group) ({_of('kwire_group_lag_offsets')})"), "{{group}}"),),
        ),
        Panel("Members", "none", (Query(_largest(f"sum by (group) ({_of('kwire_group_members')})"), "{{group}}"),)),
        Panel(
            "Groups by state",
            "none",
            (Query(f"sum by (type, state) ({_of('kwire_coordinator_groups')})", "{{type}} {{state}}"),),
        ),
        Panel(
            "Without series of their own",
            "none",
            (
                Query(f"sum({_of('kwire_group_left_out_groups')})", "groups"),
                Query(f"sum({_of('kwire_group_lag_left_out_offsets')})", "committed offsets"),
                Query(f"sum({_of('kwire_group_lag_unknown_offsets')})", "lag not known yet"),
            ),
        ),
    ),
    "Rooms": (
        Panel(
            "Rooms and subscribers",
            "none",
            (
                Query(f"sum({_of('kwire_rooms')})", "rooms"),
                Query(f"sum({_of('kwire_rooms_subscribers')})", "subscribers"),
                Query(f"sum({_of('kwire_streams')})", "streams"),
            ),
        ),
        Panel("Events delivered to subscribers", "cps", (Query(_rate("kwire_rooms_deliveries_total")),)),
        Panel(
            "Bytes of streams",
            "Bps",
            (
                Query(_rate("kwire_streams_sent_bytes_total"), "sent"),
                Query(_rate("kwire_streams_received_bytes_total"), "received"),
            ),
        ),
        Panel(
            "Slow subscribers",
            "none",
            (
                Query(f"sum({_of('kwire_rooms_blocked_subscribers')})", "blocked now"),
                Query(f"sum(increase({_of('kwire_rooms_lag_actions_total')}[{RANGE}]))", "on_lag applied"),
            ),
        ),
        Panel(
            "Streams closed by the server",
            "cps",
            (Query(_rate("kwire_streams_closed_total", "reason"), "{{reason}}"),),
        ),
        Panel(
            "Sockets of tenants",
            "none",
            (Query(f"sum({_of('kwire_db_sessions')})", "open"), Query(f"sum({_of('kwire_db_slots')})", "slots in use")),
        ),
    ),
    "Webhooks": (
        Panel("Webhooks", "none", (Query(f"sum by (state) ({_of('kwire_webhooks')})", "{{state}}"),)),
        Panel("Attempts", "cps", (Query(_rate("kwire_webhooks_attempts_total", "outcome"), "{{outcome}}"),)),
        Panel(
            "Events that wait",
            "none",
            (
                Query(f"sum({_of('kwire_webhooks_pending_events')})", "not sent yet"),
                Query(f"sum({_of('kwire_webhooks_retrying_events')})", "to be tried again"),
                Query(f"sum({_of('kwire_webhooks_in_flight')})", "being sent"),
            ),
        ),
        Panel("Dead letters", "none", (Query(f"sum({_of('kwire_webhooks_dead_letters')})"),)),
    ),
    "Access": (
        Panel(
            "Logins",
            "cps",
            (Query(_rate("kwire_access_logins_total", "port, outcome"), "{{port}}, {{outcome}}"),),
        ),
        Panel("Refused operations", "cps", (Query(_rate("kwire_access_denials_total", "port"), "{{port}}"),)),
        Panel(
            "Throttle times by quota",
            "s",
            (
                Query(
                    _largest(_rate("kwire_quota_throttle_seconds_total", "quota, user, client_id, ip")),
                    "{{quota}} {{user}} {{client_id}} {{ip}}",
                ),
            ),
            "Seconds of throttle time per second.",
        ),
        Panel(
            "Use of quotas",
            "percentunit",
            (
                Query(
                    _largest(f"{_of('kwire_quota_rate')} / {_of('kwire_quota_limit')}"),
                    "{{quota}} {{user}} {{client_id}} {{ip}}",
                ),
            ),
        ),
        Panel(
            "Audit entries",
            "cps",
            (
                Query(_rate("kwire_audit_entries_total"), "recorded"),
                Query(_rate("kwire_audit_dropped_total"), "lost"),
            ),
        ),
        Panel(
            "Users, keys and ACLs",
            "none",
            (
                Query(f"sum({_of('kwire_access_users')})", "users"),
                Query(f"sum({_of('kwire_access_keys')})", "keys"),
                Query(f"sum({_of('kwire_access_acls')})", "ACLs"),
            ),
        ),
    ),
    "Disk": (
        Panel(
            "Free",
            "bytes",
            (Query(_of("kwire_disk_free_bytes"), "{{instance}} {{directory}}"),),
        ),
        Panel(
            "Used",
            "percentunit",
            (Query(f"{_of('kwire_disk_used_bytes')} / {_of('kwire_disk_size_bytes')}", "{{instance}} {{directory}}"),),
        ),
        Panel(
            "Sync rounds",
            "s",
            (
                Query(_quantile(0.5, "kwire_storage_sync_round_seconds"), "median"),
                Query(_quantile(0.99, "kwire_storage_sync_round_seconds"), "99th percentile"),
            ),
            "A producer with acks=all waits for one or two sync rounds.",
        ),
        Panel(
            "Jobs that wait for the disk",
            "none",
            (Query(f"sum by (lane) ({_of('kwire_storage_lane_queue_length')})", "{{lane}}"),),
        ),
        Panel(
            "Longest job since the start",
            "s",
            (Query(f"max by (lane) ({_of('kwire_storage_lane_seconds_max')})", "{{lane}}"),),
        ),
        Panel("Reads from the disk", "cps", (Query(_rate("kwire_storage_cold_reads_total")),)),
        Panel(
            "Retention and compaction",
            "Bps",
            (
                Query(_rate("kwire_retention_deleted_bytes_total"), "deleted by retention"),
                Query(_rate("kwire_cleaner_removed_bytes_total"), "removed by compaction"),
            ),
        ),
        Panel(
            "Damage",
            "none",
            (
                Query(f"sum({_of('kwire_storage_quarantined_ranges')})", "ranges that cannot be read"),
                Query(f"sum({_of('kwire_storage_refusing_logs')})", "logs that accept no records"),
                Query(f"sum({_of('kwire_storage_offline_partitions')})", "offline partitions"),
                Query(f"sum({_of('kwire_storage_offline_directories')})", "offline directories"),
            ),
        ),
    ),
    # The jobs of the pipeline are processes of their own, so the chosen instances do not apply.
    "Pipeline": (
        Panel(
            "Events read",
            "cps",
            (Query(f"sum by (job, query) (rate(kwire_pipeline_events_total[{RANGE}]))", "{{job}} {{query}}"),),
        ),
        Panel("Lag", "none", (Query("sum by (job, query) (kwire_pipeline_lag_events)", "{{job}} {{query}}"),)),
        Panel(
            "Duration of micro-batches, 95th percentile",
            "s",
            (
                Query(
                    "histogram_quantile(0.95, sum by (job, query, le) "
                    f"(rate(kwire_pipeline_batch_duration_seconds_bucket[{RANGE}])))",
                    "{{job}} {{query}}",
                ),
            ),
        ),
        Panel(
            "Age of the watermark",
            "s",
            (Query("time() - kwire_pipeline_watermark_timestamp_seconds", "{{job}} {{query}}"),),
        ),
        Panel(
            "Late rows",
            "cps",
            (Query(f"sum by (job, query) (rate(kwire_pipeline_late_rows_total[{RANGE}]))", "{{job}} {{query}}"),),
        ),
        Panel("State", "none", (Query("sum by (job, query) (kwire_pipeline_state_rows)", "{{job}} {{query}}"),)),
    ),
}

_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def render() -> str:
    return json.dumps(_dashboard(), indent=1) + "\n"


def _dashboard() -> dict[str, Any]:
    return {
        "title": "kwire",
        "uid": "kwire",
        "description": "A kwire server: broker, HTTP, topics, groups, rooms, webhooks, access, disk, pipeline.",
        "tags": ["kwire", "kafka"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "",
        "annotations": {"list": []},
        "links": [],
        "templating": {"list": [_source_variable(), _instance_variable()]},
        "panels": list(_panels()),
    }


def _source_variable() -> dict[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "hide": 0}


def _instance_variable() -> dict[str, Any]:
    return {
        "name": "instance",
        "label": "Server",
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": "label_values(kwire_build_info, instance)", "refId": "instance"},
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
        "sort": 1,
    }


def _panels() -> Any:
    number, top = 0, 0
    for title, panels in ROWS.items():
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": title,
            "collapsed": False,
            "gridPos": {"x": 0, "y": top, "w": WIDTH, "h": 1},
            "panels": [],
        }
        top += 1
        stats = [panel for panel in panels if panel.kind == "stat"]
        graphs = [panel for panel in panels if panel.kind != "stat"]
        for some, columns, height in ((stats, len(stats), STAT_HEIGHT), (graphs, COLUMNS, PANEL_HEIGHT)):
            for position, panel in enumerate(some):
                number += 1
                width = WIDTH // columns
                row, column = divmod(position, columns)
                place = {"x": column * width, "y": top + row * height, "w": width, "h": height}
                yield _panel(number, panel, place)
            top += -(-len(some) // columns) * height if some else 0


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    options: dict[str, Any] = {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}}
    if panel.kind == "stat":
        # The version is a label, so the name of the series is shown and not its value.
        is_name = bool(panel.queries[0].legend)
        options = {"reduceOptions": {"calcs": ["lastNotNull"]}, "textMode": "name" if is_name else "value"}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": options,
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": _SOURCE,
                "expr": query.expression,
                "legendFormat": query.legend or panel.title,
            }
            for index, query in enumerate(panel.queries)
        ],
    }
