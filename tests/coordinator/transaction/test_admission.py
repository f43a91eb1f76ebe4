"""Admission of transactional batches, and their order."""

from collections.abc import Callable
from typing import Any

from kwire.coordinator.transaction.admission import AdmissionRequest, TransactionAdmission
from kwire.errors import ErrorCode


class _Coordinator:
    """Answers when a test says so."""

    def __init__(self) -> None:
        self.replies: dict[str, list[Callable[[Any], None]]] = {}

    def submit(self, command: Any, reply: Callable[[Any], None]) -> None:
        self.replies.setdefault(command.transactional_id, []).append(reply)


def admission_request(transactional_id: str) -> AdmissionRequest:
    return AdmissionRequest(transactional_id, 1, 0, [("t", 0)], False)


def test_who_is_admitted_appends_at_once_whatever_others_claim_of_its_producer() -> None:
    """A request under a transactional id that is not the producer's own, whose coordinator takes long to answer."""
    coordinator: Any = _Coordinator()
    transaction_admission = TransactionAdmission(coordinator)
    told: list[tuple[str, ErrorCode]] = []
    transaction_admission.admit(admission_request("other"), lambda error: told.append(("other", error)))
    transaction_admission.admit(admission_request("own"), lambda error: told.append(("own", error)))
    (reply,) = coordinator.replies["own"]
    reply([ErrorCode.NONE])
    # A marker that was decided since may come next.
    assert told == [("own", ErrorCode.NONE)]


def test_requests_of_one_transaction_keep_their_order() -> None:
    coordinator: Any = _Coordinator()
    transaction_admission = TransactionAdmission(coordinator)
    told: list[int] = []
    for number in range(2):
        transaction_admission.admit(admission_request("own"), lambda error, number=number: told.append(number))  # type: ignore[misc]
    first, second = coordinator.replies["own"]
    second([ErrorCode.NONE])
    assert not told
    first([ErrorCode.NONE])
    assert told == [0, 1]
