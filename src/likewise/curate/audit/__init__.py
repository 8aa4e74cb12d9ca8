"""Audit: labels that are probably wrong, retrieval errors and the training samples that cause them."""
