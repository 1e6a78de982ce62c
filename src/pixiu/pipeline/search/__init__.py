"""From commits of the archive into an index: what was said, less what was recalled, erased or has aged out."""
