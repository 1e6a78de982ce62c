"""The jobs: DataFrames in, DataFrames out. Where rows come from and go to is not their concern."""
