"""Whether a history of transactions is one that Kafka's promises allow; every broken promise is named, with the facts.

Linear in the length of the history, because offsets already give the order that a general checker would have to guess.
Interleaved writes of two open transactions in one partition are no anomaly: Kafka promises nothing about them.
"""

from collections.abc import Iterable

from tests.support.history import AnyEvent, Isolation
from tests.support.history_anomalies import Anomaly
from tests.support.history_group_checks import GROUP_CHECKS
from tests.support.history_log_checks import LOG_CHECKS
from tests.support.history_reader_checks import READER_CHECKS
from tests.support.history_view import HistoryView


def anomalies_in(events: Iterable[AnyEvent]) -> list[Anomaly]:
    """All of them; none is what a good server gives."""
    view = HistoryView(events)
    final = view.final
    assert final[Isolation.COMMITTED], "nothing was read in the end"
    assert final[Isolation.COMMITTED].keys() == final[Isolation.UNCOMMITTED].keys(), "not everything was read twice"
    return [anomaly for check in (*LOG_CHECKS, *READER_CHECKS, *GROUP_CHECKS) for anomaly in check(view)]
