"""Which contract tests cannot hold for a queue with several partitions, and why.

Each test that is not named here runs with four partitions too, in full runs.
"""

from __future__ import annotations

ORDER = "jobs are in order within a partition only, and those of this test are in several"
TOGETHER = "only what is in one partition is committed together"
LINKS = "a job waits only for jobs of its own partition"
CONSUMER = "numbered batches and positions belong to one object, so they are refused"
HISTORY = "each partition has versions of its own, so there is no one order of changes"
KIND_LIMIT = "the jobs of a kind are in all partitions, so limits of kinds are refused"
TURNS = "groups take turns within a partition only"
SIZES = "each partition has room of its own"
ONE_OBJECT = "it looks at the object at the address, which is one of several partitions"
AUDIT = "each partition keeps what was done to its own jobs"

NOT_ACROSS = {
    "test_queue_batches": {
        "test_a_job_waits_for_others": LINKS,
        "test_jobs_of_one_push_wait_for_those_before_them": ORDER,
        "test_the_jobs_of_a_batch_are_cancelled": ORDER,
        "test_the_jobs_of_a_batch_are_listed": ORDER,
        "test_what_is_in_the_archive_has_ended": LINKS,
    },
    "test_queue_blocking": {"test_a_job_is_pushed_claimed_and_completed": ORDER},
    "test_queue_bulk": {"*": CONSUMER},
    "test_queue_claim": {
        "test_a_claim_takes_one_kind_several_or_any": ORDER,
        "test_a_job_keeps_its_place_in_the_order_while_it_is_delayed": ORDER,
        "test_jobs_are_claimed_first_in_first_out": ORDER,
        "test_the_lower_priority_number_goes_first_across_kinds": ORDER,
    },
    "test_queue_deep": {
        "test_a_job_in_a_segment_is_shown_and_cancelled": ORDER,
        "test_a_snapshot_has_every_job_once_although_it_does_not_fit_in_the_cache": ORDER,
        "test_many_jobs_in_segments_are_cancelled_at_once": ORDER,
        "test_pages_have_every_job_of_a_deep_queue": ORDER,
        "test_room_counts_what_is_in_segments": SIZES,
    },
    "test_queue_follow_ups": {"test_a_taken_name_or_key_refuses_no_completion": TOGETHER},
    "test_queue_history": {"*": HISTORY},
    "test_queue_large_payloads": {
        "test_a_file_is_a_payload": ORDER,
        "test_a_payload_that_is_lost_affects_its_own_job_only": ORDER,
        "test_numbered_batches_have_no_large_payloads": CONSUMER,
    },
    "test_queue_leases": {"test_a_released_job_keeps_its_place_and_costs_no_attempt": ORDER},
    "test_queue_limits": {
        "test_a_group_obeys_its_own_limit_or_that_of_every_group": TURNS,
        "test_a_rate_lets_a_burst_start_and_then_one_after_the_other": KIND_LIMIT,
        "test_each_set_of_kinds_has_its_own_turns": TURNS,
        "test_groups_take_turns_and_keep_the_order_of_pushes": TURNS,
        "test_no_more_jobs_of_a_kind_run_than_its_limit": KIND_LIMIT,
        "test_numbered_batches_obey_limits": CONSUMER,
        "test_the_more_urgent_priority_goes_first_whatever_its_group": ORDER,
        "test_the_turn_outlives_the_process_that_served_it": TURNS,
    },
    "test_queue_operators": {
        "test_a_paused_queue_hands_out_nothing_and_lets_the_rest_go_on": ORDER,
        "test_a_redrive_chooses_by_id_kind_or_number": ORDER,
        "test_a_snapshot_holds_every_job_at_the_version_in_the_storage": ONE_OBJECT,
        "test_dead_jobs_are_given_a_new_life_in_their_old_place": ORDER,
        "test_jobs_are_listed_by_status_kind_and_tags": ORDER,
        "test_jobs_are_listed_page_by_page": ORDER,
        "test_the_numbers_add_up": ONE_OBJECT,
    },
    "test_queue_push": {
        "test_a_full_queue_refuses_pushes_and_nothing_else": SIZES,
        "test_a_push_is_in_the_storage_when_it_returns": ONE_OBJECT,
        "test_one_bad_job_among_many_keeps_all_of_them_out": TOGETHER,
        "test_one_of_several_pushes_at_once_is_rejected_alone": TOGETHER,
    },
    "test_queue_workers": {
        "test_the_audit_is_bounded_and_repeats_are_one_entry": AUDIT,
        "test_the_jobs_of_a_worker_are_counted": "a worker itself says how many jobs it runs",
    },
}
"""By module and test; a star stands for all tests of a module."""


def reason_of(module: str, test: str) -> str | None:
    """Why a test does not hold across partitions; None: it does."""
    tests = NOT_ACROSS.get(module.rpartition(".")[2], {})
    return tests.get(test) or tests.get("*")
