"""A report as one self-contained HTML page: key figures, plots, and the rows with the highest scores, explained."""

from imondrian.report.page import Picture, Report, write_report
from imondrian.report.series_page import IncidentEntry, SeriesReport, write_series_report

__all__ = ["IncidentEntry", "Picture", "Report", "SeriesReport", "write_report", "write_series_report"]
