"""What predictors of tables do beside products: classes, distances, look-ups."""
