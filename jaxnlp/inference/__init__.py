"""Answers of trained models: arguments, batches of few shapes, compiled programs."""
