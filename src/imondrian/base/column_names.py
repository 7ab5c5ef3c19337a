"""Names of the result columns, in tables, on streams and on Spark, and how a column without a name is shown."""

ROW, SCORE, LABEL, EXPLANATION = "row", "anomaly_score", "is_anomaly", "explanation"
SURPRISE, INCIDENT = "surprise", "incident"
BORROWED = "is_borrowed"  # only on streams with one detector per key
THRESHOLD, ERROR = "threshold", "error"
EXPLANATION_TEXT = "explanation_text"  # on Spark, where "explanation" is a map
TABLE_RESULTS = (SCORE, SURPRISE, LABEL, EXPLANATION)  # columns added to tables
RESULTS = (ROW, SCORE, SURPRISE, LABEL, EXPLANATION, THRESHOLD, INCIDENT, ERROR)  # columns added to tables or streams
NO_NAME = "(no name)"  # shown in place of an empty name
