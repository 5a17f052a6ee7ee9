"""``docs/reference``: pages for people that are made from what the program itself goes by.

A page of each command, from the same flags as ``--help``; exit codes, the catalogue of failures,
rules, GPUs, the shipped recipes and the keys of recipes. They are written with

    python -m scripts.reference
"""
