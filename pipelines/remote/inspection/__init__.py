"""What ``invoke doctor`` asks a host: slower than ``facts``, each part for itself.

Nothing here changes the host. Every child process has a timeout, and a source that fails leaves
``None`` and its reason under ``problems`` (see ``facts.gather``).
"""
