"""What `import fxf` gives: models in memory, and runs."""
