"""What EPs compile by input shapes: made ahead or on a miss, kept, padded, replaced."""
