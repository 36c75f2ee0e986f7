"""The contracts of stores and queues on MiniStack."""

from __future__ import annotations

from tests.contract.clouds import contract

globals().update(contract("ministack"))
