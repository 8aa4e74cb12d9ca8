"""The page where people decide about labels and pairs: items shown, decisions stored, consensus, the server."""
