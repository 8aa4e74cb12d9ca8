"""Records in, text and pictures out: console tables, figures, HTML templates."""
