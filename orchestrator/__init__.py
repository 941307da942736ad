"""The engine room: plans trainings, runs them on Ray, keeps their results. Knows no subject and no network."""
