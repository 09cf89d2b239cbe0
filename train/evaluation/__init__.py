"""Scoring of a model, in training and of saved runs."""
