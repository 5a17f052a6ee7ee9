"""A GPU in the sandbox: Windows' CUDA driver, with every call forwarded to Linux' driver."""
