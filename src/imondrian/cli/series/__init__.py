"""The work of `imondrian plot series` and `imondrian report`: a table watched as a time series, and its report."""
