"""Served pages and their HTTP limits: search and review."""
