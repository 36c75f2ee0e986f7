"""Jobs that are put off."""

from bucketq.model.operations import Fail, Redrive
from tests.unit.model.driver import Driver, lease_of


def test_from_the_hundred_and_first_time_on_a_snooze_is_a_failure() -> None:
    queue = Driver(backoff={"base_s": 0.0})
    queue.push("j1", max_attempts=2)
    for count in range(100):
        job = queue.claim_one()
        assert job.snoozes == count
        snooze = Fail(job="j1", lease=lease_of(job), error="", snooze=True)
        assert queue.ok(snooze) == "queued"
    for status in ("queued", "dead"):
        job = queue.claim_one()
        snooze = Fail(job="j1", lease=lease_of(job), error="", snooze=True)
        assert queue.ok(snooze, "s", number=job.attempt) == status
        assert queue.ok(snooze, "s", number=job.attempt) == status, "a retry has the same answer"
    job = queue.job("j1")
    assert (job.snoozes, job.failures, job.attempt) == (100, 2, 102)
    assert job.errors[-1].error.startswith("it was put off 100 times")
    assert queue.ok(Redrive(jobs=("j1",))) == 1
    assert queue.job("j1").snoozes == 0
