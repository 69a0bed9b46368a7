"""One run: plans executed, with streams, devices, checks of results, and profiles."""
