"""Foundations: errors, files, config sections, the table of weights, and the machine that a process runs on."""
