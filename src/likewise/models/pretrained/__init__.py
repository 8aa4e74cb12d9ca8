"""Weights and encoders that others trained: files, installed packages and hubs."""
