"""DescribeUserScramCredentials: all users, some, unknown ones, and those named twice."""

import pytest

from kwire.errors import ErrorCode
from kwire.handlers import describe_user_scram_credentials
from kwire.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from tests.support.node import QuietNode, in_loop


async def describe(node: QuietNode, *names: str) -> DescribeUserScramCredentialsResponse:
    request = DescribeUserScramCredentialsRequest(users=[UserName(name=name) for name in names])
    answer: DescribeUserScramCredentialsResponse = await node.ask(request, 0)
    return answer


@in_loop
async def test_users_are_described_without_their_keys(node: QuietNode) -> None:
    for name in ("bob", "alice"):
        await node.services.users.create(name, "secret")
    for request in (DescribeUserScramCredentialsRequest(users=None), DescribeUserScramCredentialsRequest(users=[])):
        answer = await node.ask(request, 0)
        assert (answer.error_code, answer.error_message) == (0, None)
        assert [(one.user, one.error_code) for one in answer.results] == [("alice", 0), ("bob", 0)]
        for one in answer.results:
            assert [(info.mechanism, info.iterations) for info in one.credential_infos] == [(1, 4096), (2, 4096)]
    (only,) = (await describe(node, "bob")).results
    assert only.user == "bob"


@in_loop
async def test_unknown_and_repeated_users_are_errors_of_their_own(node: QuietNode) -> None:
    await node.services.users.create("alice", "secret")
    answer = await describe(node, "alice", "nobody", "alice", "", "x" * 300)
    assert answer.error_code == 0
    found = {one.user: (ErrorCode(one.error_code), one.error_message) for one in answer.results}
    assert found == {
        "alice": (
            ErrorCode.DUPLICATE_RESOURCE,
            "Cannot describe SCRAM credentials for the same user twice in a single request: alice",
        ),
        "nobody": (
            ErrorCode.RESOURCE_NOT_FOUND,
            "Attempt to describe a user credential that does not exist: nobody",
        ),
        "": (ErrorCode.RESOURCE_NOT_FOUND, "Attempt to describe a user credential that does not exist: "),
        "x" * 300: (
            ErrorCode.RESOURCE_NOT_FOUND,
            f"Attempt to describe a user credential that does not exist: {'x' * 300}",
        ),
    }


@in_loop
async def test_names_are_limited(node: QuietNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(describe_user_scram_credentials, "NAMES_MAX", 2)
    assert (await describe(node, "a", "b")).error_code == 0
    answer = await describe(node, "a", "b", "c")
    assert (answer.error_code, answer.results) == (ErrorCode.INVALID_REQUEST, [])
