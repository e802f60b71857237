"""RNN: recurrent layers with all time steps in one operator."""
