"""From prompts to tokens: step by step, then in turns, then by beam search."""
