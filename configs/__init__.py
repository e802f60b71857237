"""The bundled configs, found by name: `mxrun train digits_lenet`."""
