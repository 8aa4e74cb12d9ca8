"""The exact ranking engine: integer scores, candidates, ranking. It knows nothing about runs."""
