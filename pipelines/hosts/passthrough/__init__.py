"""GPUs on their way into containers and virtual machines."""
