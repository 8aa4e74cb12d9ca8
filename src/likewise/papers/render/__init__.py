"""Tables and figures of papers, from their records."""
