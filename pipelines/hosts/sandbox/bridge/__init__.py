"""A GPU in the sandbox: Windows' CUDA driver, of which every call goes to Linux' driver."""
