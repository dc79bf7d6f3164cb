"""The tables of metrics, conditions and alerts, from which everything else derives."""
