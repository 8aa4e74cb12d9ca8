"""Stages: straight lines of parts, each from one config to one result."""
