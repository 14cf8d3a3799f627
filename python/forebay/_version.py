"""The version of this package: that of the workspace in Cargo.toml."""

__version__ = "0.2.0"
