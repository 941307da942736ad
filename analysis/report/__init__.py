"""The report: every claim of the papers beside what the store's runs say of it, on one page."""

import analysis.figures  # noqa: F401, before any module here imports matplotlib
