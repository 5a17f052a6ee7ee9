"""Windows CUDA wheels, built and proven from any machine."""

__version__ = "0.1.0"
