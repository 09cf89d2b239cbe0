"""The logs of a run."""
