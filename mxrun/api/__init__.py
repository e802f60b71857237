"""The Python face: models from configs and runs, trained, evaluated and inspected in Python."""
