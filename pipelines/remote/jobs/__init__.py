"""Work that outlives the connection, the shell and the controller: one directory a job.

=================  ===========================================================================
``spec.json``      what runs: a function of this package and its arguments
``alive``          locked by the runner as long as it lives; the only proof that it does
``state.json``     attempt, process id, how it was started, boot identity; written by the runner
``log.<attempt>``  what the function yielded as bytes
``result.json``    what it yielded last; written last, by rename
``cancel``         somebody wants it to end
=================  ===========================================================================

Files, because handles are not inherited across the ways out of WinRM's job object, and because any
controller can read them.
"""
