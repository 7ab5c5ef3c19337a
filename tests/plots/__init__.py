"""Tests of imondrian.plots."""
