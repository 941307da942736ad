"""From rows to numbers and figures. Reads the store, trains nothing."""

import orchestrator  # noqa: F401, before anything else: it looks whether a command can be started here
