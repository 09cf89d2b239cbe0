"""The command line of the training programs."""
