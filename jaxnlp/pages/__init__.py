"""Pages and the blocks of reports."""
