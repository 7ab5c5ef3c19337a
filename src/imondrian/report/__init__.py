"""A report as one self-contained HTML page: key figures, plots, and the rows with the highest scores, explained."""

from imondrian.report.page import Picture, Report, write_report

__all__ = ["Picture", "Report", "write_report"]
