"""What the tables say, gathered once and shown as text, as a page, or as JSON for the console."""
