"""What the limits of the conditions are worth, on recorded runs: writes the figures in docs/alerts.md."""
