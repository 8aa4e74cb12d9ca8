"""The page where people judge labels and pairs. `store`: findings, decisions, exports; `app`: the page's server."""
