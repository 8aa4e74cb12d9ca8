"""Searching again and again: an index that lives in a folder, and a page that answers with its rows."""
