"""Other systems beside ours, in the same run."""
