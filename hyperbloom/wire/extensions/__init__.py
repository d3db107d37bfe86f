"""What nodes say beyond the protocol: a file for each extension, and the table of all messages."""
