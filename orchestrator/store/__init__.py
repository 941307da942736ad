"""The result store: what finished runs told, kept for good. It lies in a folder, or in a bucket; nothing else differs for who
uses it.

    with ResultStore("results") as store:                    # or "s3://bucket/folder"
        if store.claim(key):                                 # no other launch trains this run now
            store.save_checkpoint(key, data)                 # a run in progress
            store.append([make_row(spec, ...)])              # durable, and there once, whoever else appends it
            store.drop_checkpoint(key)
            store.release(key)
        rows = store.rows(where={"family": families})        # all that is known of these runs

**`ResultStore(path, read_only=False, tell=...)`** has a row for every finished run, each exactly once.

- `rows(columns, where)`, `table(columns, where)`: rows as dicts, or as an Arrow table. `key in store`, `len(store)`.
- `frame(task)`: the rows of one task as a table of pandas, with a column for each of its settings.
- `refresh()`: the rows that others have written since.
- `append(rows)`: adds those whose key is not there yet, and returns them.
- `claim(key)`, `claim_all(keys)`, `release(key)`: who trains a run. A claim ends with its launch.

**`MeasureTable(path)`** has what was measured in trained models, a file for each measure of a run.

- `rows(measures, keys, versions)`: all quantities. `known()`: what is there. `has(key, measure, version)`: whether this is.
- `save(key, measure, version, data)`: keeps what `measures.encode` made.
- `claim(key)`, `release(key)`: who measures a run.

Both are **`Artifacts(path)`**, which has the files beside the rows.

- `save_weights(key, data)`, `load_weights(key)`, `weights_path(key)`, `has_weights(key)`, `with_weights()`.
- `save_checkpoint(key, data)`, `load_checkpoint(key)`, `drop_checkpoint(key)`, `checkpoint_path(key)`, `with_checkpoints()`.
- `load_checkpoints(keys)`, and `each(method, items)`: as one by one, but with a bucket many requests are made at a time.
- `save_pack_sizes(sizes)`, `load_pack_sizes()`.
- `publish(folder, files)`: puts figures and tables into a bucket.
- `location` is the store as users know it, `path` the folder of this machine that holds or mirrors it.
- `notices`: what was found that does not belong there, a line each.
- `waited`: seconds for which a bucket has not answered; `hasten()` ends such waits; `close()` frees every lock and claim.

**`save_question(store, question)`**, **`drop_question`**, **`load_questions(store)`** keep what launches were asked, each a
**`Question`**.

What cannot be done is a **`StoreError`**, one line for a user; an **`UnreadableError`** is about one file. **`make_row`** makes
a row of SCHEMA from a run and its result.

**`lies_at(given)`** is one path for each place, a folder or one in a bucket, however it is spelled.

Below are the places: `place.Place` says what a store asks of one, `folder.Folder` and `bucket.Bucket` do it. `turns` says whose
turn it is to change rows there. `reader` and `writer` take care of the part files, `register` knows what is in them.
"""

from orchestrator.store.artifacts import Artifacts
from orchestrator.store.folder import FOLDERS
from orchestrator.store.measures import MeasureTable
from orchestrator.store.place import StoreError, UnreadableError
from orchestrator.store.questions import Question, drop_question, load_questions, save_question
from orchestrator.store.remote import lies_at
from orchestrator.store.results import ResultStore
from orchestrator.store.rows import PROVENANCE, SCHEMA, STATUSES, Row, make_row

__all__ = [
    "FOLDERS", "PROVENANCE", "SCHEMA", "STATUSES", "Artifacts", "MeasureTable", "Question", "ResultStore", "Row", "StoreError",
    "UnreadableError", "drop_question", "lies_at", "load_questions", "make_row", "save_question",
]  # fmt: skip
