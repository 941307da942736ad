"""What is measured of trained networks, one module a measure: pure functions from a network to quantities."""
