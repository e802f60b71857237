"""mxrun: neural networks from a YAML file, with everything known before the first step."""

__version__ = "0.1.0"
