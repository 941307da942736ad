"""The report: every claim of the paper beside what the store's runs say of it, on one page."""
