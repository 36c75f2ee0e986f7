"""The contracts of stores and queues on fake-gcs-server."""

from __future__ import annotations

from tests.contract.clouds import contract

globals().update(contract("fakegcs"))
