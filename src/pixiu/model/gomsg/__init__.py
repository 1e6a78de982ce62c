"""gomsg's messages by their own names and numbers, for clients that were generated from its files."""
