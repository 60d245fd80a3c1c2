"""Processes of a measurement: our nodes and other systems, told what to do line by line."""
