"""The work of the commands on tables: rows scored with a model, the summary, and the HTML report."""
