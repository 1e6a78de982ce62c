"""The horn: tells those who are away, through whatever their phones listen to."""
