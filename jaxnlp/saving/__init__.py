"""Files of a run: checkpoints, configs as JSON, atomic writes."""
