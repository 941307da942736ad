"""From rows to numbers and figures. Reads the store, trains nothing."""
