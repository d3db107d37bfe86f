"""What nodes say beyond the protocol, a file for each extension."""
