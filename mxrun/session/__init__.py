"""What the commands share: a config's plan, a run and its data, a trained network."""
