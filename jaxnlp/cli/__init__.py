"""The command line: options, messages, verbs, and the inputs that verbs read."""
