"""What users do: the verbs, over ports only."""
