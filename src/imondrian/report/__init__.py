"""Reports as self-contained HTML pages, with key figures and plots.

A report about a table explains the rows with the highest scores; a report about a time series explains its incidents.
"""

from imondrian.report.page import Picture, Report, write_report
from imondrian.report.series_page import IncidentEntry, SeriesReport, write_series_report

__all__ = ["IncidentEntry", "Picture", "Report", "SeriesReport", "write_report", "write_series_report"]
