"""From a loaded model and the EPs chosen for it to plans that runs execute."""
