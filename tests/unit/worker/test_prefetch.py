"""How many jobs are fetched ahead."""

from __future__ import annotations

from bucketq.worker.prefetch import MOST, Prefetch


def paced(concurrency: int, claim_s: float, run_s: float) -> Prefetch:
    prefetch = Prefetch(concurrency)
    for _ in range(50):
        prefetch.note_claim(claim_s)
        prefetch.note_run(run_s)
    return prefetch


def test_nothing_is_fetched_ahead_before_a_handler_has_ended() -> None:
    prefetch = Prefetch(10)
    assert prefetch.ahead == 0
    prefetch.note_claim(5.0)
    assert prefetch.ahead == 0


def test_what_the_slots_work_off_during_a_claim_is_fetched_ahead() -> None:
    assert paced(10, claim_s=0.1, run_s=0.1).ahead in (20, 21)
    assert paced(10, claim_s=0.1, run_s=0.01).ahead in (200, 201)


def test_handlers_that_take_longer_than_a_claim_get_nothing_ahead() -> None:
    assert paced(10, claim_s=0.1, run_s=2.0).ahead == 0
    assert paced(1, claim_s=0.1, run_s=0.2).ahead == 0


def test_nothing_is_fetched_that_would_wait_longer_than_a_second() -> None:
    """However slow claims are: what waits for two seconds is released."""
    assert paced(10, claim_s=5.0, run_s=0.1).ahead == 100


def test_the_number_of_jobs_fetched_ahead_has_a_limit() -> None:
    assert paced(100, claim_s=1.0, run_s=0.0).ahead == MOST


def test_nothing_is_fetched_ahead_if_the_limit_is_zero() -> None:
    prefetch = paced(100, claim_s=1.0, run_s=0.0)
    prefetch.most = 0
    assert prefetch.ahead == 0


def test_one_long_handler_among_short_ones_is_soon_forgotten() -> None:
    prefetch = paced(10, claim_s=0.1, run_s=0.01)
    prefetch.note_run(10.0)
    assert prefetch.ahead < 5
    for _ in range(40):
        prefetch.note_run(0.01)
    assert prefetch.ahead > 50


def test_after_a_jam_nothing_is_fetched_ahead_until_a_handler_has_ended() -> None:
    """Even if claims are slow: what is fetched now would wait as long, and be released."""
    prefetch = paced(10, claim_s=1.0, run_s=0.01)
    prefetch.note_jam(2.0)
    assert prefetch.ahead == 0
    prefetch.note_run(0.01)
    assert 0 < prefetch.ahead <= 10
