"""Readers of files: public data sets and the user's own."""
