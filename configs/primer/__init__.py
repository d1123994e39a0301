"""What seed 002, a machine learning primer, trains: bilayers, random boolean maps and delayed-sum time series."""
