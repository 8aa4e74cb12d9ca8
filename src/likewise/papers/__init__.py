"""Tables and figures of papers: grids, executors, published numbers. Only the command line imports it."""
