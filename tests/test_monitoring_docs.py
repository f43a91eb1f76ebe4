"""docs/monitoring is right: the dashboard has the structure that Grafana reads, and every alert fires in time.

tests/end_to_end/test_monitoring.py compares both with a real server.
"""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.prometheus import DOCS, RuleCase, alert_names, dashboard, promtool, rule_tests, rules

COLUMNS = 24
ROWS = ["Broker", "HTTP", "Topics", "Groups", "Rooms", "Webhooks", "Access", "Disk", "Pipeline"]
PANEL_TYPES = {"timeseries", "stat"}
METRIC = re.compile(r"\b(?:kwire|process)_[a-z0-9_]+")
SERVER = 'instance="a"'

# What each alert needs to fire. At the first minute all is well.
CASES = {
    "KwireDown": RuleCase({f'up{{job="kwire", {SERVER}}}': "1 0x60"}),
    "KwireRestarted": RuleCase({f'process_start_time_seconds{{job="kwire", {SERVER}}}': "100x9 700x60"}, minute=12),
    "KwireEventLoopStalls": RuleCase({f"kwire_loop_stalls_total{{{SERVER}}}": "0+2x60"}),
    "KwireSlowProduce": RuleCase(
        {
            f'kwire_server_request_seconds_bucket{{api="Produce", le="1.0", {SERVER}}}': "0x60",
            f'kwire_server_request_seconds_bucket{{api="Produce", le="5.0", {SERVER}}}': "0+60x60",
            f'kwire_server_request_seconds_bucket{{api="Produce", le="+Inf", {SERVER}}}': "0+60x60",
        }
    ),
    "KwireConnectionsRefused": RuleCase(
        {f'kwire_server_connections_opened_total{{fate="refused", {SERVER}}}': "0+1x60"}
    ),
    "KwireFileDescriptorsLow": RuleCase(
        {
            f'process_open_fds{{job="kwire", {SERVER}}}': "10 900x60",
            f'process_max_fds{{job="kwire", {SERVER}}}': "1000x60",
        }
    ),
    "KwireHttpErrors": RuleCase(
        {
            f'kwire_http_requests_total{{route="/events", status="500", {SERVER}}}': "0+10x60",
            f'kwire_http_requests_total{{route="/events", status="201", {SERVER}}}': "0+10x60",
        }
    ),
    # The time begins at 0.
    "KwireCertificateExpires": RuleCase(
        {f'kwire_tls_certificate_expiry_timestamp_seconds{{listener="SSL", {SERVER}}}': "2000000 100000x60"}
    ),
    "KwireDiskAlmostFull": RuleCase(
        {
            f'kwire_disk_free_bytes{{directory="/data", {SERVER}}}': "50 5x60",
            f'kwire_disk_size_bytes{{directory="/data", {SERVER}}}': "100x60",
        }
    ),
    "KwireDiskFullSoon": RuleCase(
        {
            f'kwire_disk_free_bytes{{directory="/data", {SERVER}}}': "4000-5x600",
            f'kwire_disk_size_bytes{{directory="/data", {SERVER}}}': "10000x600",
        },
        minute=420,
    ),
    "KwireLogsRefuseRecords": RuleCase({f"kwire_storage_refusing_logs{{{SERVER}}}": "0 1x60"}),
    "KwireDamagedRecords": RuleCase({f"kwire_storage_quarantined_ranges{{{SERVER}}}": "0 1x60"}),
    "KwirePartitionsOffline": RuleCase({f"kwire_storage_offline_partitions{{{SERVER}}}": "0 2x60"}),
    "KwireSlowSyncs": RuleCase(
        {
            f'kwire_storage_sync_round_seconds_bucket{{le="0.5", {SERVER}}}': "0x60",
            f'kwire_storage_sync_round_seconds_bucket{{le="1.0", {SERVER}}}': "0+60x60",
            f'kwire_storage_sync_round_seconds_bucket{{le="+Inf", {SERVER}}}': "0+60x60",
        }
    ),
    "KwireMaintenanceFails": RuleCase({f"kwire_retention_failures_total{{{SERVER}}}": "0+1x60"}),
    "KwireGroupBehind": RuleCase(
        {f'kwire_group_lag_seconds{{group="g", topic="t", partition="0", {SERVER}}}': "0 400x60"}
    ),
    "KwireGroupWithoutMembers": RuleCase(
        {
            f'kwire_group_lag_offsets{{group="g", topic="t", partition="0", {SERVER}}}': "0 5x60",
            f'kwire_group_members{{group="g", {SERVER}}}': "0x60",
        }
    ),
    "KwireOldTransaction": RuleCase({f"kwire_coordinator_oldest_transaction_seconds{{{SERVER}}}": "0 1000x60"}),
    "KwireSubscribersTooSlow": RuleCase({f"kwire_rooms_lag_actions_total{{{SERVER}}}": "0+1x60"}),
    "KwireEventFilesBehind": RuleCase({f"kwire_event_files_behind_seconds{{{SERVER}}}": "0 700x60"}),
    "KwirePipelineBehind": RuleCase({'kwire_pipeline_lag_events{job="lake", query="orders"}': "0 200000x60"}),
    "KwireWebhooksFail": RuleCase(
        {
            f'kwire_webhooks_attempts_total{{outcome="failed", {SERVER}}}': "0+10x60",
            f'kwire_webhooks_attempts_total{{outcome="delivered", {SERVER}}}': "0+1x60",
        }
    ),
    "KwireDeadLetters": RuleCase({f"kwire_webhooks_died_total{{{SERVER}}}": "0+1x60"}),
    "KwireWebhookDisabled": RuleCase({f'kwire_webhooks{{state="disabled", {SERVER}}}': "0 1x60"}),
    "KwireFailedLogins": RuleCase(
        {f'kwire_access_logins_total{{port="http", outcome="failure", {SERVER}}}': "0+10x60"}
    ),
    "KwireOperationsDenied": RuleCase({f'kwire_access_denials_total{{port="http", {SERVER}}}': "0+20x60"}),
    "KwireClientThrottled": RuleCase(
        {f'kwire_quota_throttle_seconds_total{{quota="produce", user="u", client_id="", ip="", {SERVER}}}': "0+30x60"}
    ),
    "KwireAuditEntriesLost": RuleCase({f"kwire_audit_dropped_total{{{SERVER}}}": "0+1x60"}),
}


def declared_metrics() -> set[str]:
    """The names of the series of all metrics in the docs."""
    page = (DOCS / "metrics.md").read_text(encoding="utf-8") + (DOCS.parent / "pipeline.md").read_text(encoding="utf-8")
    names = set(METRIC.findall(page))
    return names | {f"{name}_bucket" for name in names}


def panels() -> list[Any]:
    found: list[Any] = dashboard()["panels"]
    return found


@pytest.mark.needs_prometheus
def test_every_alert_fires_when_its_condition_has_lasted_long_enough(tmp_path: Path) -> None:
    assert set(CASES) == set(alert_names())
    path = tmp_path / "cases.yml"
    path.write_text(yaml.safe_dump(rule_tests(CASES)), encoding="utf-8")
    promtool("test", "rules", path)
    print(f"{len(CASES)} alerts fire in promtool")


@pytest.mark.needs_prometheus
def test_the_example_configuration_is_valid() -> None:
    assert "SUCCESS" in promtool("check", "config", DOCS / "prometheus.yml")


def test_every_alert_says_what_is_wrong_and_what_to_do() -> None:
    names = alert_names()
    assert len(names) == len(set(names))
    for group in rules()["groups"]:
        for rule in group["rules"]:
            assert rule["labels"]["severity"] in ("info", "warning", "critical"), rule["alert"]
            assert rule["annotations"]["summary"], rule["alert"]
            assert rule["annotations"]["description"].endswith((".", "?")), rule["alert"]


def test_all_metrics_of_dashboard_and_alerts_exist() -> None:
    texts = [target["expr"] for panel in panels() for target in panel.get("targets", ())]
    texts += [rule["expr"] for group in rules()["groups"] for rule in group["rules"]]
    used = {name for text in texts for name in METRIC.findall(text)}
    assert used - declared_metrics() == set()


def test_the_dashboard_has_a_row_for_each_part_of_the_server() -> None:
    assert [panel["title"] for panel in panels() if panel["type"] == "row"] == ROWS


def test_panels_have_what_grafana_needs() -> None:
    assert len({panel["id"] for panel in panels()}) == len(panels())
    sources = {variable["name"] for variable in dashboard()["templating"]["list"]}
    assert sources == {"datasource", "instance"}
    for panel in panels():
        if panel["type"] == "row":
            continue
        assert panel["type"] in PANEL_TYPES
        assert panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["targets"]
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
        for target in panel["targets"]:
            assert target["datasource"] == panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
            assert target["legendFormat"]


def test_panels_do_not_overlap() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in panels():
        place = panel["gridPos"]
        assert 0 <= place["x"] < place["x"] + place["w"] <= COLUMNS
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, f"{panel['title']} lies on {taken[x, y]}"
                taken[x, y] = panel["title"]
