"""Pages and the sections of reports."""
