"""A widget for notebooks (Jupyter, VS Code): a map of embeddings. It needs the extra `notebook`."""
