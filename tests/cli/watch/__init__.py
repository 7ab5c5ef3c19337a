"""Tests of `imondrian watch`."""
