"""What workers are told is explained by name; anything else fails the run."""

from tests.support.transactional_errors import NEVER_BEGUN, NO_ANSWER, REASONS, told, unexplained


def test_what_has_a_reason_is_explained_and_what_is_no_error_does_not_count() -> None:
    assert unexplained([*REASONS, "committed", "zombies fenced"]) == []
    assert told("end", NEVER_BEGUN) in REASONS


def test_a_fence_is_explained_for_a_replaced_producer_only() -> None:
    assert unexplained([told("end", "fenced", is_replaced=True)]) == []
    assert unexplained([told("end", "fenced")]) == [told("end", "fenced")]


def test_no_answer_to_somebody_patient_is_not_explained() -> None:
    assert unexplained([told("end", NO_ANSWER)]) == [told("end", NO_ANSWER)]
