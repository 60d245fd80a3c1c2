"""Where publishers meet: the lock of a source, full queues and how to wait for them, handlers within handlers."""
