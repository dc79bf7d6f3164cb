"""Records a run: writes what goes into it as JSON lines, and knows series and histograms as JSON."""
