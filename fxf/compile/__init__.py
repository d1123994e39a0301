"""What programs cost on hardware that need not be here: compiled for it, read from the text of the program."""
