"""Training: configs, objectives, the step, the loop, checkpoints, logs and reports."""
