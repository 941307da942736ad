"""What is measured of a trained decoder, one module a measure: pure functions from the decoder to quantities."""
