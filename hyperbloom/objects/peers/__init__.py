"""The pool among its peers: connections, whom to be connected with, what is told to whom."""
