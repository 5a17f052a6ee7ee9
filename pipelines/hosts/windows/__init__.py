"""What every Windows host needs, whichever way it is reached."""

#: Where the pipeline puts the Python that runs its own code on a Windows host.
FIRST_PYTHON = r"C:\wcw\python\python.exe"
