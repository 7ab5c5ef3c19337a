"""From scores to alarms: thresholds, surprise, incidents and drift."""
