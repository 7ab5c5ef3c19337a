"""Fitted models: scores with labels, explanations in words, model files."""
