"""Technologies: one folder each, one file per port that it implements."""
