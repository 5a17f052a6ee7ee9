"""One wheel's compile units divided between hosts: who compiles what, and what was compiled.

Run by the Python that builds, as a package beside buildwheel.py: nothing here imports what is
outside of this folder. The controller uses :mod:`.balance`, so that both divide alike.
"""
