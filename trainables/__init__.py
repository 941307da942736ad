"""The science: tasks, decoders, the training loop. Knows torch; only `adapter` knows Ray."""
