"""Moved to `trainables.spec`. Kept for one version, so that tasks written before still import."""

from trainables.spec import *  # noqa: F403
