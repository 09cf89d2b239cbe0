"""Training: config, step, loop, checkpoints, logs and reports."""
