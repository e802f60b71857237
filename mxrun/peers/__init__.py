"""MXNet and PyTorch as helper processes that run mxrun's symbols: oracle and opponents."""
