"""Leader epochs: where each began and ended, as OffsetForLeaderEpoch answers it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.log.leader_epochs import LeaderEpochs


def test_the_end_of_an_epoch_is_the_start_of_the_next() -> None:
    epochs = LeaderEpochs([(2, 10), (5, 20), (6, 30)])
    assert epochs.latest == 6
    assert epochs.end_offset_for(6, 44) == (6, 44)
    assert epochs.end_offset_for(5, 44) == (5, 30)
    assert epochs.end_offset_for(4, 44) == (2, 20)
    assert epochs.end_offset_for(2, 44) == (2, 20)
    assert epochs.end_offset_for(1, 44) == (1, 10)
    assert epochs.end_offset_for(7, 44) == (-1, -1)
    assert epochs.end_offset_for(-1, 44) == (-1, -1)
    assert epochs.end_offset_for(-2, 44) == (-2, 10)
    assert LeaderEpochs().end_offset_for(0, 44) == LeaderEpochs().end_offset_for(-2, 44) == (-1, -1)


def test_an_epoch_that_wrote_nothing_is_forgotten() -> None:
    epochs = LeaderEpochs([(1, 0), (2, 10), (3, 10)])
    assert epochs.entries == [(1, 0), (3, 10)]


def test_epochs_only_rise() -> None:
    epochs = LeaderEpochs([(3, 0)])
    epochs.assign(3, 5)
    assert epochs.entries == [(3, 0)]
    with pytest.raises(ValueError, match="epoch 2 is below the latest one, 3"):
        epochs.assign(2, 6)


def test_truncation_from_both_ends() -> None:
    epochs = LeaderEpochs([(1, 0), (2, 10), (3, 20)])
    epochs.truncate_from_end(20)
    assert (epochs.entries, epochs.latest) == ([(1, 0), (2, 10)], 2)
    epochs.truncate_from_start(5)
    assert epochs.entries == [(1, 5), (2, 10)]
    epochs.truncate_from_start(10)
    assert epochs.entries == [(2, 10)]
    epochs.truncate_from_end(0)
    assert (epochs.entries, epochs.latest) == ([], -1)
    epochs.truncate_from_start(10)
    assert epochs.entries == []


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.integers(0, 50))
def test_the_epoch_of_an_offset_agrees_with_the_batches(rises: list[int], asked: int) -> None:
    epochs, written, epoch = LeaderEpochs(), [], 0
    for offset, rise in enumerate(rises):
        epoch += rise
        epochs.assign(epoch, offset)
        written.append(epoch)
    for offset, expected in enumerate(written):
        assert epochs.epoch_for(offset) == expected
    found, end = epochs.end_offset_for(asked, len(written))
    not_above = [number for number in written if number <= asked]
    if asked > written[-1]:
        assert (found, end) == (-1, -1)
    elif not_above:
        assert (found, end) == (not_above[-1], len(not_above))
    else:
        assert (found, end) == (asked, 0)


def test_the_epoch_in_force_begins_at_the_log_end_until_it_has_written() -> None:
    epochs = LeaderEpochs([(2, 10), (5, 20)])
    assert epochs.end_offset_for(8, 44, leader_epoch=8) == (8, 44)
    assert epochs.end_offset_for(7, 44, leader_epoch=8) == (5, 44)
    assert epochs.end_offset_for(5, 44, leader_epoch=8) == (5, 44)
    assert epochs.end_offset_for(2, 44, leader_epoch=8) == (2, 20)
    assert epochs.end_offset_for(9, 44, leader_epoch=8) == (-1, -1)
    nothing = LeaderEpochs()
    assert nothing.end_offset_for(8, 44, leader_epoch=8) == (8, 44)
    assert nothing.end_offset_for(3, 44, leader_epoch=8) == (3, 44)


@given(st.lists(st.integers(0, 3), max_size=20), st.integers(0, 3), st.integers(-1, 70))
def test_an_epoch_that_leads_and_one_that_wrote_its_first_record_next_agree(
    rises: list[int], rise: int, asked: int
) -> None:
    epochs, epoch = LeaderEpochs(), 0
    for offset, more in enumerate(rises):
        epoch += more
        epochs.assign(epoch, offset)
    leader_epoch, end = epoch + rise, len(rises)
    found = epochs.end_offset_for(asked, end, leader_epoch)
    if leader_epoch > epochs.latest:
        epochs.assign(leader_epoch, end)
    assert found == epochs.end_offset_for(asked, end)
