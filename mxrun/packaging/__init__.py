"""Build of the package: type stubs of what is generated from the registry, made with each build."""
