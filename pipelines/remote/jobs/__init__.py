"""Work that outlives the connection, the shell and the controller: one directory per job.

=================  ===========================================================================
``spec.json``      a function of this package and its arguments
``alive``          locked by the runner while it lives; the only proof of that
``state.json``     attempt, process id, how it was started, boot identity; written by the runner
``log.<attempt>``  the bytes that the function yielded
``result.json``    its result; written last, by rename
``cancel``         a request to end it
=================  ===========================================================================

Files, because handles are not inherited outside WinRM's job object, and because any controller
can read them.
"""
