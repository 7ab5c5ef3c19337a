"""A report as one HTML page that needs nothing else: facts, pictures, and the oddest rows with their reasons."""

from imondrian.report.page import Picture, Report, write_report

__all__ = ["Picture", "Report", "write_report"]
