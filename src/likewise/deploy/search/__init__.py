"""The search page: its server, and the micro-batcher that embeds waiting images together."""
