"""Training: the loop of one run, packs of runs that are trained together, the stopping rule, checkpoints, random streams."""
