"""The engine room: plans trainings, runs them on Ray, keeps their results. Knows no subject and no network."""

from orchestrator.command.beginning import begin, is_command

if is_command():  # its process has imported nothing yet
    begin()
