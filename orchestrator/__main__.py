"""All studies under one command: `sweep scaling --N 16..64`, or `python -m orchestrator scaling --N 16..64`."""

from __future__ import annotations

from orchestrator import encodings, geometry, regularization, rotation, scaling, tuning
from orchestrator.cli import main_of, new_app

app = new_app(no_args_is_help=True, help="Answers questions that take thousands of small trainings. Every study has a --help.")
app.command("scaling")(scaling.scaling)
app.command("regularization")(regularization.regularization)
app.command("encodings")(encodings.encodings)
app.command("geometry")(geometry.geometry)
app.command("tuning")(tuning.tuning)
app.command("rotation")(rotation.rotation)


main = main_of(app, "sweep")

if __name__ == "__main__":
    main()
