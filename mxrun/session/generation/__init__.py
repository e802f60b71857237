"""Generation of text with a trained network: its plan, sampling, prompts and the loop."""
