"""Windows CUDA wheels, built and proven from any machine."""
