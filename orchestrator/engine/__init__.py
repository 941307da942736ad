"""Executes a search on Ray: which run is next, where it is trained, and what each kind of ending means."""
