"""What holds a run together: checkpoints, configs as JSON, atomic files."""
