"""What admins see and do at a node: sessions, topics, dead letters, figures, the pipeline's tables."""
