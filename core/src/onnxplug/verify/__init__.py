"""The on-device check: what EPs compute is compared before it is used."""
