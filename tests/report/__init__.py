"""Tests of imondrian.report."""
