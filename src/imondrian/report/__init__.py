"""A report as one HTML page that needs nothing else: facts, pictures, and the oddest rows with their reasons."""

from imondrian.report.page import OddRow, Picture, Report, write_report

__all__ = ["OddRow", "Picture", "Report", "write_report"]
