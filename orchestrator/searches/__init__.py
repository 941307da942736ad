"""Searches: pure functions from finished rows to the next runs."""
