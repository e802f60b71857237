"""Start of the program on the monotonic clock.

Imported first, before anything that takes time. The system's own start time of the process is that
of a shell if the shell has run its last command in its own process (`bash -c 'sleep 3 && mxrun'`),
so the start-up of the interpreter is counted as the processor time that the process has used.
"""

import time

STARTED_AT = time.monotonic() - time.process_time()
"""Start of the interpreter, in seconds of `time.monotonic`."""
