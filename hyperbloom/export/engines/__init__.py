"""Two ways to run the tasks of an export: Spark, and processes of this machine."""
