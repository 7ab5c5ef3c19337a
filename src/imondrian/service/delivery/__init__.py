"""Delivery of events to receivers and listeners."""
