"""Inference with trained models: arguments, batches of few shapes, compiled programs."""
