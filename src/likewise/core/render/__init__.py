"""Text tables, figures and HTML templates."""
