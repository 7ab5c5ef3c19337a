"""Tests of imondrian.cli."""
