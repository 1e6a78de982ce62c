"""What the records of ``pixiu.main`` say, as rows of tables."""
