"""One wheel's compile units sharded between hosts: assigning, compiling and linking them.

Run by the building Python, as a package next to buildwheel.py: nothing here imports modules outside
this folder. The controller uses :mod:`.balance`, so that both shard alike.
"""
