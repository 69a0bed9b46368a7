"""Products of matrices by FMA and by tiles of bfloat16, and their epilogues."""
