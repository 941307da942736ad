"""Figures, one module a family: functions from a table of measured quantities to a figure, without files or state."""
