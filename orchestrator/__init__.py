"""The engine room: plans trainings, runs them on Ray, keeps their results. Knows no subject and no network."""

import sys

if sys.argv[:1] and sys.argv[0].rpartition("/")[2] in ("-m", "sweep"):  # the process of a command; it has imported nothing yet
    from orchestrator.command.beginning import begin

    begin()
