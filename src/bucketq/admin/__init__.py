"""Administer the object of a queue: create, delete, back up, restore, repair, edit.

Every write here is conditional on what was read before, and is repeated until its outcome is
certain. Processes that use the queue meanwhile notice this:

=========  ==================================  ==============================================
operation  what becomes of the object          what a process that uses the queue notices
=========  ==================================  ==============================================
edit       the next version                    nothing: it continues with what was edited
repair     the next version                    ``CorruptStateError`` until then, then nothing
restore    a new incarnation, a later version  ``SupersededError``: it connects again
delete     deleted                             ``SupersededError``: it does not recreate the queue
=========  ==================================  ==============================================
"""

from bucketq.admin.accept_loss import AcceptedLoss, accept_loss
from bucketq.admin.copies import Copy, backup, save_to
from bucketq.admin.create import create
from bucketq.admin.deep_check import BadSegment, DeepCheck, Orphan, check_deep
from bucketq.admin.deletion import Deleted, delete
from bucketq.admin.edit import Draft, Edited, begin_edit, finish_edit
from bucketq.admin.gc import Swept, clear_incarnation, count_segments, sweep, sweep_history
from bucketq.admin.history_check import HistoryCheck
from bucketq.admin.payload_objects import (
    PayloadCheck,
    folder_of_queue,
    large_jobs_in,
    save_payloads,
)
from bucketq.admin.queue_object import ChangedMeanwhileError, QueueObject, Summary, summarize
from bucketq.admin.repair import Diagnosis, repair
from bucketq.admin.restore import Restored, restore

__all__ = [
    "AcceptedLoss",
    "BadSegment",
    "ChangedMeanwhileError",
    "Copy",
    "DeepCheck",
    "Deleted",
    "Diagnosis",
    "Draft",
    "Edited",
    "HistoryCheck",
    "Orphan",
    "PayloadCheck",
    "QueueObject",
    "Restored",
    "Summary",
    "Swept",
    "accept_loss",
    "backup",
    "begin_edit",
    "check_deep",
    "clear_incarnation",
    "count_segments",
    "create",
    "delete",
    "finish_edit",
    "folder_of_queue",
    "large_jobs_in",
    "repair",
    "restore",
    "save_payloads",
    "save_to",
    "summarize",
    "sweep",
    "sweep_history",
]
