"""What runs on a host: standard library only, shipped by value as a package called ``remote``.

Modules import each other relatively (``from .rpc import idempotent``), so that the same file
works under both names; nothing here imports the rest of ``pipelines``.
"""
