"""The page where people judge labels and pairs. `findings`: what an audit found; `panels`: what is shown of it; `store`:
decisions; `outcome`: agreement and tables; `app`: the page's server."""
