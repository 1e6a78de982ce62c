"""The log as a source of Spark: ``format("pixiu")``, and the decoding below it, which knows no Spark."""
