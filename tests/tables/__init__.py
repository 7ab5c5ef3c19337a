"""Tests of imondrian.tables."""
