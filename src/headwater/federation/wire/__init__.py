"""What nodes exchange, as bytes: frames, requests and their answers. No I/O; nothing here is trusted yet."""
