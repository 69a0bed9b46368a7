"""Times the EPs that a policy may choose on one model, and keeps which was fastest."""
