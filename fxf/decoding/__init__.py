"""A prompt's way to text: sampling, beam search, and the loop in which prompts take turns."""
