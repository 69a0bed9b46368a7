"""What of the families of commands is another on CUDA than on other GPUs."""
