"""What the processor and the system have: instructions, registers, caches, cores."""
