"""Import and export of the models of other libraries."""
