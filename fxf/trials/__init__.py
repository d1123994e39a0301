"""Trials of one config against another, over pairs of runs with the same seed: is it better?"""
