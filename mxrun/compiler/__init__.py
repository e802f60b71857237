"""Symbol → Plan: the passes and the planning stages in their order, and checks of the result."""
