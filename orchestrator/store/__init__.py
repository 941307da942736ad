"""The result store: what finished runs told, kept for good.

`ResultStore` holds a row for every finished run, each exactly once, and the weights and checkpoints beside the rows.
`MeasureTable` holds what was measured in trained models. Both live in one folder, or in one bucket.
"""

from orchestrator.store.artifacts import StoreError
from orchestrator.store.measures import MeasureTable
from orchestrator.store.results import ResultStore
from orchestrator.store.rows import PROVENANCE, SCHEMA, STATUSES, Row, make_row

__all__ = ["PROVENANCE", "SCHEMA", "STATUSES", "MeasureTable", "ResultStore", "Row", "StoreError", "make_row"]
