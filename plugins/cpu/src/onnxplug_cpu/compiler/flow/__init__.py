"""Control flow: commands within commands, chosen or done turn after turn."""
