"""Random histories of a webhook, compared with a simple model."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from tests.support.effort import examples
from tests.support.webhook_world import WebhookWorld


@pytest.mark.proves("S2-18", "S2-42", "S2-43")
@settings(max_examples=examples(150), deadline=None)
@given(seed=some.integers(0, 2**32), is_ordered=some.booleans(), has_filter=some.booleans())
def test_nothing_is_lost_and_order_is_kept_whatever_happens(seed: int, is_ordered: bool, has_filter: bool) -> None:
    WebhookWorld(seed, is_ordered=is_ordered, has_filter=has_filter).run(200)
