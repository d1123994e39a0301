"""Import and export of weights and programs of other libraries."""
