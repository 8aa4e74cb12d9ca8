"""Turn records into text and figures: console tables, figures, HTML templates."""
