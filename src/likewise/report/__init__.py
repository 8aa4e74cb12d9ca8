"""Pictures and tables for people."""
