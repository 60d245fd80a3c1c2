"""Studies: a recorded log and subscriptions, played live through a federation and run on Spark, and a report of it."""
