"""What a broker shows of itself: gauges for the metrics, sizes of its logs, rates of what it did lately."""
