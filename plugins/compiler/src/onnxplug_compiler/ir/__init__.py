"""What passes from one room to another: chains, buffers, views and commands."""
