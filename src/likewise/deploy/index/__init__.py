"""Vectors on disk that a search looks in: storage, snapshots, faiss, building and querying."""
