"""A run's programs, compiled by XLA for a device that need not be on this machine."""
