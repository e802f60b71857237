"""Generation of text with a trained network: its plan, prompts and sampling."""
