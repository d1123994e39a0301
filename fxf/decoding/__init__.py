"""Decoding, from prompts to tokens: step by step, in turns, and by beam search."""
