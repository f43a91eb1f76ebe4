"""DescribeClientQuotas: there are none, and wrong filters are refused."""

import pytest

from kwire.errors import ErrorCode
from kwire.wire.apis import DESCRIBE_CLIENT_QUOTAS
from kwire.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from tests.support.node import QuietNode, in_every_version, in_loop

Filter = tuple[str, int, str | None]


def request(*components: Filter) -> DescribeClientQuotasRequest:
    return DescribeClientQuotasRequest(
        components=[
            ComponentData(entity_type=kind, match_type=match_type, match=match)
            for kind, match_type, match in components
        ],
        strict=False,
    )


@in_every_version(DESCRIBE_CLIENT_QUOTAS)
@in_loop
async def test_there_are_no_quotas(node: QuietNode, version: int) -> None:
    for components in ((), (("user", 0, "alice"), ("client-id", 1, None)), (("user", 2, None),), (("ip", 0, "::1"),)):
        answer = await node.ask(request(*components), version)
        assert (answer.error_code, answer.error_message, answer.entries) == (0, None, [])


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("", 0, "x")], ErrorCode.INVALID_REQUEST),
        ([("planet", 0, "x")], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", 0, "x"), ("user", 1, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 0, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 1, "x")], ErrorCode.INVALID_REQUEST),
        ([("user", 2, "x")], ErrorCode.INVALID_REQUEST),
        ([("user", 3, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 0, "x"), ("ip", 1, None)], ErrorCode.INVALID_REQUEST),
    ],
)
@in_loop
async def test_wrong_filters_are_refused(node: QuietNode, components: list[Filter], code: ErrorCode) -> None:
    answer = await node.ask(request(*components), 1)
    assert (answer.error_code, answer.entries) == (code, None)
    assert answer.error_message
