"""An adapter at work: its device, queue, memory, and compiled graphs on it."""
