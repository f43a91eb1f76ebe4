"""Settings of webhooks."""

import pytest

from kwire.config import LONG_MAX, InvalidConfig, load
from kwire.server.outbound.webhook_delivery import rules_of


def test_the_retry_schedule_is_that_of_the_documentation_unless_it_is_set() -> None:
    minute_ms, hour_ms = 60_000, 3_600_000
    assert load().webhooks.retry_schedule_ms == (
        *(5000, 5 * minute_ms, 30 * minute_ms),
        *(2 * hour_ms, 5 * hour_ms, 10 * hour_ms, 10 * hour_ms),
    )
    assert load(settings=["kwire.webhooks.retry.schedule.ms=5, 5,5"]).webhooks.retry_schedule_ms == (5, 5, 5)
    assert load(settings=["kwire.webhooks.retry.schedule.ms="]).webhooks.retry_schedule_ms == ()


def test_webhooks_are_safe_unless_they_are_opened() -> None:
    rules = rules_of(load().webhooks)
    assert (rules.is_private_allowed, rules.is_http_allowed) == (False, False)
    assert rules.ports == frozenset({80, 443, 8080, 8443})
    assert load().webhooks.timeout_ms == 15_000
    opened = rules_of(load(settings=["kwire.webhooks.ports=*", "kwire.webhooks.allow.private=true"]).webhooks)
    assert (opened.is_private_allowed, opened.ports) == (True, None)
    assert load(settings=["kwire.webhooks.disable.after.hours=-1"]).webhooks.disable_after_ms == LONG_MAX


@pytest.mark.parametrize(
    "setting",
    [
        "kwire.webhooks.ports=80,0",
        "kwire.webhooks.ports=http",
        "kwire.webhooks.ports=*,80",
        "kwire.webhooks.retry.schedule.ms=1,,2",
        "kwire.webhooks.retry.schedule.ms=-1",
        "kwire.webhooks.retry.schedule.ms=9999999999999",
        "kwire.webhooks.retry.schedule.ms=" + ",".join(["1"] * 51),
        "kwire.webhooks.timeout.ms=0",
        "kwire.webhooks.disable.after.hours=0",
        "kwire.webhooks.max=-1",
    ],
)
def test_what_makes_no_sense_is_refused(setting: str) -> None:
    with pytest.raises(InvalidConfig, match=setting.partition("=")[0]):
        load(settings=[setting])
