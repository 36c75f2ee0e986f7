"""Care of the object, for people: create, delete, back up, restore, repair, edit.

Everything here is a compare-and-set against what was seen, never a blind write, and resolves
its own doubt as a commit does. What a running process sees of it:

=========  ==================================  ==============================================
what       what becomes of the object          what a process that was using it meets
=========  ==================================  ==============================================
edit       the next version                    nothing: it goes on, on what was edited
repair     the next version                    ``CorruptStateError`` until then, then it goes on
restore    a new incarnation, a later version  ``SupersededError``: it connects again
delete     gone                                ``SupersededError``: nothing is created again
=========  ==================================  ==============================================
"""

from bucketq.admin.edit import Draft, Edited, begin_edit, finish_edit
from bucketq.admin.lifecycle import Copy, Restored, backup, create, delete, restore, save_to
from bucketq.admin.place import ChangedMeanwhileError, Place, Summary, look
from bucketq.admin.repair import Diagnosis, repair

__all__ = [
    "ChangedMeanwhileError",
    "Copy",
    "Diagnosis",
    "Draft",
    "Edited",
    "Place",
    "Restored",
    "Summary",
    "backup",
    "begin_edit",
    "create",
    "delete",
    "finish_edit",
    "look",
    "repair",
    "restore",
    "save_to",
]
