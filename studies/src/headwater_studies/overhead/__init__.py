"""What the service itself costs: its operations, its control messages, its size."""
