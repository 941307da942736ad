"""The result store: what finished runs told, kept for good.

`ResultStore` holds a row for every finished run, each exactly once, and the weights and checkpoints beside the rows.
`MeasureTable` holds what was measured in trained models. A `Question` is what a launch was asked. All live in one folder, or in
one bucket.
"""

from orchestrator.store.artifacts import StoreError
from orchestrator.store.measures import MeasureTable
from orchestrator.store.questions import Question, load_questions, save_question
from orchestrator.store.results import ResultStore
from orchestrator.store.rows import PROVENANCE, SCHEMA, STATUSES, Row, make_row

__all__ = [
    "PROVENANCE", "SCHEMA", "STATUSES", "MeasureTable", "Question", "ResultStore", "Row", "StoreError", "load_questions",
    "make_row", "save_question",
]  # fmt: skip
