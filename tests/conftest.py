"""What all tests start from."""

import signal

# A job in the background of a shell ignores interrupts, and so would the programs that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
