"""The functions of `import fxf`: models in memory, and runs."""
