"""Decoding, from prompts to tokens: step by step, in slots, and by beam search."""
