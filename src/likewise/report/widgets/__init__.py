"""Widgets for notebooks (Jupyter, VS Code): the review of an audit, and a map of embeddings. They need the extra `notebook`."""
