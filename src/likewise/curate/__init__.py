"""Correct the data: audit, review on a page, apply, and exchange with annotation tools."""
