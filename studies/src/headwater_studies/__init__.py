"""Studies of what Headwater costs and saves, beside published figures and other systems."""
